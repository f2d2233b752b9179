#!/usr/bin/env python3
"""Metrics of the daemon over HTTP: their format, that they have all that `roci show` has, the dashboard's names, addresses that are
refused, and clients that misbehave.

Usage: metrics_test.py ROCI ROCID PLUGIN DASHBOARD [--promtool] [unittest arguments]

--promtool: only the check by Prometheus' own tools (Debian's package prometheus), and one scrape by it.
"""
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from harness import LIMIT_S, Daemon, Programs, await_, free_port

PROGRAMS = DASHBOARD = None
OPEN = 'application/openmetrics-text; version=1.0.0'
NAME = r'[a-zA-Z_][a-zA-Z0-9_]*'
LABEL = re.compile(rf'({NAME})="((?:[^"\\\n]|\\[\\"n])*)"')
SAMPLE = re.compile(rf'^({NAME})(?:\{{((?:{LABEL.pattern},?)*)\}})? (\S+)$')
SUFFIXES = {'counter': ('_total',), 'gauge': ('',), 'info': ('_info',), 'histogram': ('_bucket', '_count', '_sum')}


class Metrics:
    """A parsed answer in OpenMetrics; raises AssertionError where the text violates the format."""

    def __init__(self, text):
        self.samples = {}  # (name, sorted labels): value
        self.types = {}
        assert text.endswith('\n# EOF\n'), text[-200:]
        family = None
        for line in text.splitlines()[:-1]:
            if line.startswith('#'):
                family = self.describe(line, family)
            else:
                self.add(line, family)
        self.check_histograms()

    def describe(self, line, family):
        word, name, rest = line[2:].split(' ', 2)
        assert word in ('HELP', 'TYPE', 'UNIT') and rest, line
        if word == 'HELP':
            assert name not in self.types, f'{name} twice'
            self.types[name] = None
            return name
        assert name == family, f'{line} after {family}'
        if word == 'TYPE':
            assert rest in SUFFIXES, line
            self.types[name] = rest
        else:
            assert name.endswith('_' + rest), line
        return family

    def add(self, line, family):
        match = SAMPLE.match(line)
        assert match, line
        name, labels = match[1], match[2] or ''
        assert name in [family + suffix for suffix in SUFFIXES[self.types[family]]], f'{line} in {family}'
        pairs = LABEL.findall(labels)
        assert ','.join(f'{key}="{value}"' for key, value in pairs) == labels, line
        key = (name, tuple(sorted(pairs)))
        assert key not in self.samples, f'{line} twice'
        self.samples[key] = float(match[match.lastindex])

    def check_histograms(self):
        for (name, labels), total in self.samples.items():
            if self.types.get(name.removesuffix('_count')) != 'histogram':
                continue
            family = name.removesuffix('_count')
            buckets = [(float(dict(key)['le']), value) for (each, key), value in self.samples.items()
                       if each == family + '_bucket' and tuple(pair for pair in key if pair[0] != 'le') == labels]
            buckets.sort()
            values = [value for _, value in buckets]
            assert values == sorted(values) and buckets[-1] == (float('inf'), total), family

    def names(self):
        return {name for name, _ in self.samples}

    def value(self, name, **labels):
        return self.samples[(name, tuple(sorted((key, str(value)) for key, value in labels.items())))]


def flood(port, ready):
    """As an ordinary user: has 400 connections all the time, 200 with half of a request, and 200 that ask and do not read."""
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    requests = b'GET /metr', b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'
    clients = {}
    gone = select.epoll()

    def add(kind):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(('127.0.0.1', port))
        client.send(requests[kind])
        clients[client.fileno()] = client, kind
        gone.register(client.fileno(), select.EPOLLRDHUP)
    for i in range(400):
        add(i % 2)
    os.write(ready, b'y')
    while True:
        for fd, _ in gone.poll():
            client, kind = clients.pop(fd)
            client.close()
            while True:
                try:
                    add(kind)
                    break
                except OSError:
                    pass


class Flood:
    """A process that runs flood()."""

    def __init__(self, port):
        is_ready, ready = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                flood(port, ready)
            finally:
                os._exit(1)
        os.close(ready)
        self.has_begun = os.read(is_ready, 1) == b'y'
        os.close(is_ready)

    def stop(self):
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        return os.WIFSIGNALED(status)


class MetricsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.port = free_port()
        cls.daemon = Daemon(PROGRAMS, arguments=('--metrics', str(cls.port)))
        cls.addClassCleanup(cls.daemon.stop)

    def get(self, accept=OPEN):
        request = urllib.request.Request(f'http://127.0.0.1:{self.port}/metrics', headers={'Accept': accept})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.read().decode(), answer.headers['Content-Type']

    def use_devices(self):
        done = self.daemon.start('ibv_devinfo')
        done.communicate(timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0)
        time.sleep(1.1)  # a snapshot serves a second

    def rocid(self, *arguments):
        with tempfile.TemporaryDirectory(prefix='roci-metrics.') as folder:
            return subprocess.run([PROGRAMS.rocid, '--runtime-dir', folder, *arguments], capture_output=True, text=True, timeout=LIMIT_S,
                                  check=False)


class FormatTest(MetricsTest):

    def test_format(self):
        self.use_devices()
        text, kind = self.get()
        self.assertTrue(kind.startswith(OPEN), kind)
        metrics = Metrics(text)
        self.assertEqual(metrics.value('roci_device_link_up', device='roci0'), 1)
        self.assertGreater(metrics.value('roci_control_call_duration_seconds_count', call='hello'), 0)
        self.assertLess(metrics.value('roci_daemon_start_time_seconds'), time.time() + 1)

    def test_the_older_format_has_the_same_samples(self):
        text, kind = self.get('text/plain')
        self.assertTrue(kind.startswith('text/plain; version=0.0.4'), kind)
        described = set(re.findall(r'^# TYPE (\S+) ', text, re.M))
        for line in text.splitlines():
            if line.startswith('#'):
                continue
            name = SAMPLE.match(line)[1]
            self.assertTrue(name in described or re.sub('_(bucket|count|sum)$', '', name) in described, name)
        self.assertEqual({SAMPLE.match(line)[1] for line in text.splitlines() if not line.startswith('#')}, Metrics(self.get()[0]).names())

    def test_metrics_have_every_counter_of_show(self):
        metrics = Metrics(self.get()[0])
        for port in self.daemon.show('counters'):
            device = port['device']
            for name in port['counters']:
                metrics.value(f'roci_device_{name}_total', device=device)
            for name in port['transport']:
                metrics.value(f'roci_transport_{name}_total', device=device)
            for member, family, label in (('drops', 'device_dropped_packets', 'reason'), ('slow_path', 'slow_path_frames', 'outcome'),
                                          ('lost_by_port', 'port_lost_frames', 'cause')):
                for name in port[member]:
                    metrics.value(f'roci_{family}_total', device=device, **{label: name})
            for name in port['connection_manager']:
                if name == 'connections_displaced':
                    metrics.value('roci_cm_connections_displaced_total', device=device)
                else:
                    metrics.value('roci_cm_messages_total', device=device, outcome=name)
        for lcore in self.daemon.show('lcores'):
            for name, value in lcore.items():
                if name in ('lcore', 'thread', 'fairness', 'clock') or value is None:
                    continue
                name = re.sub('_ms$', '_seconds', name)
                suffix = '' if name in ('sessions', 'realtime_priority') else '_total'
                metrics.value(f'roci_lcore_{name}{suffix}', lcore=lcore['lcore'])
        for device in self.daemon.show('devices'):
            for name, value in device.items():
                if isinstance(value, dict):
                    self.assertEqual(metrics.value('roci_device_objects_limit', device=device['name'], type=name), value['limit'])

    def test_the_dashboard_uses_names_that_are_there(self):
        with open(DASHBOARD, encoding='utf-8') as file:
            dashboard = json.load(file)
        expressions = [target['expr'] for panel in dashboard['panels'] for target in panel.get('targets', ())]
        expressions += [variable['query']['query'] for variable in dashboard['templating']['list'] if isinstance(variable['query'], dict)]
        used = {name for expression in expressions for name in re.findall(r'\broci_\w+', expression)}
        self.assertGreater(len(used), 30)
        self.use_devices()
        holder = self.daemon.start('ibv_asyncwatch', '-d', 'roci0')
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        self.assertTrue(await_(lambda: self.daemon.show('apps')))
        time.sleep(1.1)
        text = self.get()[0]
        self.assertEqual(used - Metrics(text).names(), set())
        for variable in ('instance', 'device'):
            self.assertIn(variable, [each['name'] for each in dashboard['templating']['list']])

    def test_programs_are_named_by_program_and_user(self):
        holder = self.daemon.start('ibv_asyncwatch', '-d', 'roci1')
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        self.assertTrue(await_(lambda: self.daemon.show('apps')))
        time.sleep(1.1)
        metrics = Metrics(self.get()[0])
        uid = os.geteuid()
        self.assertGreaterEqual(metrics.value('roci_program_sessions', program='ibv_asyncwatch', uid=uid), 1)
        self.assertGreaterEqual(metrics.value('roci_user_resources', uid=uid, resource='sessions'), 1)


class AddressTest(MetricsTest):

    def test_a_port_in_use(self):
        done = self.rocid('--metrics', str(self.port))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f'cannot serve metrics: 127.0.0.1:{self.port}: Address already in use', done.stderr)

    def test_the_world_needs_a_word(self):
        for address in '0.0.0.0:9095', '[::]:9095', '192.0.2.1:9095':
            done = self.rocid('--metrics', address)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f'write public:{address}', done.stderr)
        with tempfile.NamedTemporaryFile('w', suffix='.toml') as config:
            config.write('[daemon]\nmetrics = "0.0.0.0:9095"\n')
            config.flush()
            done = self.rocid('--config', config.name)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f'{config.name}:2: daemon.metrics: "0.0.0.0:9095" can be reached from other machines', done.stderr)

    def test_the_key_and_the_word(self):
        port = free_port()
        daemon = Daemon(PROGRAMS, config=f'[daemon]\nmetrics = "public:0.0.0.0:{port}"\n')
        self.addCleanup(daemon.stop)
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=LIMIT_S) as answer:
            self.assertEqual(answer.status, 200)

    def test_no_metrics_by_default(self):
        daemon = Daemon(PROGRAMS)
        self.addCleanup(daemon.stop)
        own = {os.readlink(f'/proc/{daemon.pid}/fd/{fd}') for fd in os.listdir(f'/proc/{daemon.pid}/fd')}
        with open('/proc/net/tcp', encoding='ascii') as table:
            listening = {f'socket:[{row.split()[9]}]' for row in table if row.split()[3] == '0A'}
        self.assertEqual(own & listening, set())
        with open(f'/proc/{daemon.pid}/maps', encoding='utf-8') as maps:
            self.assertNotIn('libmicrohttpd', maps.read(), 'only users of metrics need the library')

    def test_telemetry_of_dpdk(self):
        daemon = Daemon(PROGRAMS, config='[daemon]\ntelemetry = true\n')
        self.addCleanup(daemon.stop)
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(daemon.runtime_dir) for name in names
                 if name.startswith('dpdk_telemetry.v2')]
        self.assertEqual(len(paths), 1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(LIMIT_S)
            client.connect(paths[0])
            self.assertEqual(json.loads(client.recv(4096))['pid'], daemon.pid)
            client.send(b'/')
            self.assertIn('/eal/params', json.loads(client.recv(65536))['/'])


class ClientTest(MetricsTest):

    def test_the_daemon_works_while_clients_misbehave(self):
        """Silent clients, and clients that ask and do not read: the daemon answers programs, and in the end a scrape."""
        clients = []
        self.addCleanup(lambda: [client.close() for client in clients])
        for i in range(64):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(('127.0.0.1', self.port))
            client.sendall(b'GET /metr' if i % 2 else b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n')
            clients.append(client)
        for _ in range(3):
            started = self.daemon.start('ibv_devinfo')
            started.communicate(timeout=LIMIT_S)
            self.assertEqual(started.returncode, 0)
        self.assertIn('roci_daemon_info', self.get()[0], 'the clients before this one are closed after five seconds')
        self.assertLess(self.daemon.descriptors(), 200)

    @unittest.skipUnless(os.geteuid() == 0, 'cannot become another user')
    def test_a_flood_of_another_user_keeps_no_scrape_out(self):
        attacker = Flood(self.port)
        self.addCleanup(lambda: self.assertTrue(attacker.stop(), 'it has ended before'))
        self.assertTrue(attacker.has_begun)
        times = []
        for _ in range(10):
            with socket.create_connection(('127.0.0.1', self.port), timeout=LIMIT_S) as scraper:
                time.sleep(0.1)  # it waits for a processor
                begin = time.monotonic()
                scraper.sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n')
                answer = b''.join(iter(lambda: scraper.recv(65536), b''))
                times.append(time.monotonic() - begin)
                self.assertIn(b'roci_daemon_info', answer)
        print('answers took', *(f'{seconds * 1000:.0f} ms' for seconds in times))
        self.assertLess(min(times), 1)

    def test_many_scrapes_make_few_snapshots(self):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=LIMIT_S)
        self.addCleanup(connection.close)
        before = self.daemon.cpu_s()
        for _ in range(100):
            connection.request('GET', '/metrics')  # connects anew: the server closes
            self.assertEqual(connection.getresponse().read()[:6], b'# HELP')
        self.assertLess(self.daemon.cpu_s() - before, 5)

    def test_paths(self):
        for path, status in ('/', 404), ('/nonsense', 404), ('/metrics?x=1', 200):
            connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=LIMIT_S)
            connection.request('GET', path)
            self.assertEqual(connection.getresponse().status, status)
            connection.close()


@unittest.skipUnless(shutil.which('promtool'), 'needs promtool (Debian: prometheus)')
class PromtoolTest(MetricsTest):

    def test_promtool_has_nothing_to_say(self):
        self.use_devices()
        done = subprocess.run(['promtool', 'check', 'metrics'], input=self.get('text/plain')[0], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ''))

    @unittest.skipUnless(shutil.which('prometheus'), 'needs prometheus')
    def test_prometheus_scrapes_it(self):
        folder = tempfile.mkdtemp(prefix='roci-prometheus.')
        self.addCleanup(shutil.rmtree, folder, True)
        with open(f'{folder}/config.yml', 'w', encoding='ascii') as config:
            config.write('scrape_configs:\n- job_name: roci\n  scrape_interval: 1s\n  static_configs:\n'
                         f'  - targets: ["127.0.0.1:{self.port}"]\n')
        port = free_port()
        server = subprocess.Popen(['prometheus', f'--config.file={folder}/config.yml', f'--storage.tsdb.path={folder}/data',
                                   f'--web.listen-address=127.0.0.1:{port}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)

        def found():
            query = f'http://127.0.0.1:{port}/api/v1/query?query=roci_device_link_up'
            try:
                with urllib.request.urlopen(query, timeout=5) as answer:
                    return len(json.load(answer)['data']['result']) == 2
            except OSError:
                return False
        self.assertTrue(await_(found))


if __name__ == '__main__':
    PROGRAMS = Programs(*(sys.argv[i] for i in (1, 2, 3)))
    DASHBOARD = os.path.abspath(sys.argv[4])
    rest = sys.argv[5:]
    if rest[:1] == ['--promtool']:
        rest[0] = 'PromtoolTest'
    elif not rest:
        rest = ['FormatTest', 'AddressTest', 'ClientTest']
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
