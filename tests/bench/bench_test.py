#!/usr/bin/env python3
"""Tests of how tools/bench parses and evaluates the output of other programs. Prints TAP."""
import json
import pathlib
import struct
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(TOP / 'tools/lib'), str(TOP / 'tests')]
import tap  # pylint: disable=wrong-import-position
from benchmark import charts, connections, hot_path, incast, networks, perftest, reordered, report  # pylint: disable=wrong-import-position
from benchmark.processes import BenchmarkError  # pylint: disable=wrong-import-position

BANDWIDTH = """\
 CQ Moderation   : 100
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 64         20000            4.04               3.70   \t\t   7.226172
 65536      20000            111.26             33.69  \t\t   0.064267
---------------------------------------------------------------------------------------
"""
LATENCY = """\
 #, usec
1, 0.56
2, 0.58
3, 12.40
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\x20
 8       3          0.56           12.40        0.58     \t       0.61        \t1.02   \t\t0.90    \t\t12.40  \x20
---------------------------------------------------------------------------------------
"""
CMTIME = """\
creating id
binding source address
destroying id
step              total ms     max ms     min us  us / conn
create id    :       12.84       0.10       6.00       8.56
resolve route:       38.10      24.21   13904.00      25.40
connect      :      314.96     288.40   44093.00     209.98
"""
STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 88.36    0.000315           0       336           sched_yield
 11.64    0.000042           1        26         2 epoll_pwait2
------ ----------- ----------- --------- --------- ----------------
100.00    0.000357           0       362         2 total
"""


QPERF = """\
tcp_lat:
    latency  =  26895 ns
tcp_bw:
    bw  =  4976896 bytes/sec
"""


class Qperf(unittest.TestCase):

    def test_numbers(self):
        self.assertEqual(networks.parse_qperf(QPERF, 'latency'), 26895)
        self.assertEqual(networks.parse_qperf(QPERF, 'bw'), 4976896)
        with self.assertRaises(BenchmarkError):
            networks.parse_qperf('failed to connect\n', 'bw')


class Perftest(unittest.TestCase):

    def test_reads_every_row_of_a_bandwidth_test(self):
        rows = perftest.parse_bandwidth(BANDWIDTH)
        self.assertEqual([row['bytes'] for row in rows], [64, 65536])
        self.assertEqual(rows[0]['million_per_s'], 7.226172)
        self.assertAlmostEqual(rows[1]['gbps'], 33.69, delta=0.01)

    def test_does_not_take_megabytes_for_gigabits(self):
        with self.assertRaises(BenchmarkError):
            perftest.parse_bandwidth(BANDWIDTH.replace('Gb/sec', 'MB/sec'))

    def test_reads_a_latency_test_and_its_samples(self):
        result = perftest.parse_latency(LATENCY)
        self.assertEqual((result['typical_us'], result['p99_us'], result['most_us']), (0.58, 0.90, 12.40))
        self.assertEqual(result['samples_us'], [0.56, 0.58, 12.40])

    def test_no_result_is_an_error(self):
        for parse, text in ((perftest.parse_bandwidth, BANDWIDTH), (perftest.parse_latency, LATENCY)):
            cut = '\n'.join(line for line in text.splitlines() if not line[:3].strip().isdigit())
            with self.assertRaises(BenchmarkError):
                parse(cut)

    def test_working_set_has_both_sides_and_at_least_a_page_of_each(self):
        self.assertEqual(perftest.working_set_bytes(64), 8192)
        self.assertEqual(perftest.working_set_bytes(1 << 20), 2 << 20)

    def test_median_is_one_of_the_runs(self):
        runs = [{'rate': rate, 'other': -rate} for rate in (3, 1, 2, 5)]
        self.assertEqual(perftest.median_of(runs, 'rate'), {'rate': 2, 'other': -2})


class Connections(unittest.TestCase):

    def test_reads_the_phases(self):
        self.assertEqual(connections.parse(CMTIME), {'create id': 12.84, 'resolve route': 38.10, 'connect': 314.96})

    def test_a_connection_that_failed_is_an_error(self):
        for text in (CMTIME + 'event: RDMA_CM_EVENT_REJECTED, error: 8\n', CMTIME.partition('step')[0]):
            with self.assertRaises(BenchmarkError):
                connections.parse(text)


class HotPath(unittest.TestCase):

    def test_reads_a_summary_of_system_calls_with_and_without_errors(self):
        self.assertEqual(hot_path.parse_strace_summary(STRACE), {'sched_yield': 336, 'epoll_pwait2': 26})

    def test_allocations_and_locks_are_not_allowed(self):
        self.assertTrue({'mmap', 'brk', 'futex', 'munmap'}.isdisjoint(hot_path.ALLOWED_CALLS))

    def test_reads_counts_of_the_slots_in_use(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(struct.pack('<9q', 7, 100, 2, 9, 0, 0, 0, 0, 0))
            file.flush()
            self.assertEqual(hot_path.read_counts(file.name), {7: (100, 2), 9: (0, 0)})


class Incast(unittest.TestCase):

    def raw(self, *received):
        steps = len(received[0])
        wire = {'rate_kbps': 10_000_000, 'step_us': 500, 'queued_bytes': [1000] * steps, 'longest_queue_bytes': 2000, 'lost': 3,
                'marked': 4, 'pauses': 5, **{f'received_bytes_{i}': list(each) for i, each in enumerate(received)}}
        return json.dumps({'senders': len(received), 'lossless': wire, 'lossy': wire})

    def test_judges_shares_by_the_second_half_and_goodput_by_the_whole(self):
        # The port carries 625,000 bytes in a step.
        found = incast.read(self.raw((625_000, 312_500), (0, 312_500)))['lossy']
        self.assertAlmostEqual(found['goodput'], 1.0)
        self.assertAlmostEqual(found['fairness'], 1.0)
        self.assertEqual(found['gbps'], [[10.0, 5.0], [0.0, 5.0]])
        self.assertEqual(found['late_gbps'], [5.0, 5.0])
        self.assertEqual((found['lost'], found['queued_kb']), (3, [1.0, 1.0]))

    def test_one_sender_with_all_the_bandwidth_is_not_fair(self):
        self.assertAlmostEqual(incast.read(self.raw((1, 500), (1, 0), (1, 0), (1, 0)))['lossless']['fairness'], 0.25)


class Reordered(unittest.TestCase):

    def test_a_curve_has_shares_of_the_goodput_without_faults(self):
        found = reordered.read('{"permille": [0, 10, 50], "READ": {"lost, tolerate": [1000, 500, 250]}}')['READ']
        self.assertEqual(found['percent'], [0, 1, 5])
        self.assertEqual(found['share'], {'lost, tolerate': [1, 0.5, 0.25]})


class Drawing(unittest.TestCase):

    def test_drawings_are_well_formed_and_hold_every_point(self):
        points = [{'bytes': 1 << n, 'gbps': float(n)} for n in range(1, 24)]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, 'a.svg')
            charts.draw_bandwidth(path, {'a <b>': points}, points[12:])
            root = xml.etree.ElementTree.parse(path).getroot()
            circles = root.findall('{http://www.w3.org/2000/svg}circle')
            self.assertEqual(len(circles), len(points) + len(points[12:]))
            charts.draw_latency(path, {'a': [0.5] * 990 + [20.0] * 10, 'b': [1.0, 2.0]})
            xml.etree.ElementTree.parse(path)
            charts.draw_over_time(path, 'a', 'b', {'c': [1, 2, 3], 'd': [0, 0, 0]}, 0.5, dashed='d')
            self.assertEqual(path.read_text().count('stroke-dasharray'), 2)
            xml.etree.ElementTree.parse(path)

    def test_a_line_over_time_is_as_high_as_its_values(self):
        self.assertEqual(charts.time_line([0, 4, 8], width=3), ' ▄█')
        self.assertEqual(len(charts.time_line([1.0] * 240)), 60)

    def test_steps_of_an_axis_are_round(self):
        self.assertEqual([charts.round_step(span) for span in (4, 170, 99, 0.9)], [1, 20, 20, 0.2])

    def test_bars_are_as_long_as_their_values(self):
        lines = charts.bars([('a', 4, ''), ('b', 2, ''), ('c', 0, '')], width=8)
        self.assertEqual([line.count('█') for line in lines], [8, 4, 0])


class Report(unittest.TestCase):

    def test_failed_measurements_are_short(self):
        table = report.Table()
        table.add('fine', 3.0, 'us', limit=1.5, share=0.5, wanted='<= 4 us', ok=True)
        table.add('not demanded', 3, 'us')
        table.fail('broken', 'it broke')
        self.assertEqual([row['what'] for row in table.short], ['broken'])
        text = '\n'.join(table.lines())
        self.assertIn('50%', text)
        self.assertIn('broken: it broke', text)


if __name__ == '__main__':
    tap.main(sys.modules['__main__'])
