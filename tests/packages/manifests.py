"""Reads the containers of docs/containers/: what each runs, and what it gets of the machine and of other containers."""
import dataclasses
import pathlib
import posixpath
import re

import yaml

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / 'docs/containers'
COMPOSE = FOLDER / 'compose.yaml'
KUBERNETES = FOLDER / 'kubernetes.yaml'
CONTAINERFILE = FOLDER / 'Containerfile'
IMAGE = 'rocinante'  # of the Containerfile


@dataclasses.dataclass
class Mount:
    """`source` is a path of the machine, or the name of a volume or of a ConfigMap."""
    source: str
    target: str
    readonly: bool = False


@dataclasses.dataclass
class Container:
    """`command`: instead of the image's entry point, or None. `arguments`: instead of the image's command, or None."""
    name: str
    image: str
    command: list = None
    arguments: list = None
    environment: dict = dataclasses.field(default_factory=dict)
    mounts: list = dataclasses.field(default_factory=list)
    added_capabilities: set = dataclasses.field(default_factory=set)
    dropped_capabilities: set = dataclasses.field(default_factory=set)
    no_new_privileges: bool = False
    probe: list = None  # succeeds when the container is ready

    def source_of(self, path):
        """What a path in the container is: the source of its mount, and the rest of the path. KeyError: part of the image."""
        inside = [mount for mount in self.mounts if (path + '/').startswith(mount.target + '/')]
        if not inside:
            raise KeyError(f'{self.name}: {path} is not mounted')
        mount = max(inside, key=lambda mount: len(mount.target))
        return posixpath.join(mount.source, posixpath.relpath(path, mount.target)).removesuffix('/.')


def compose():
    """The services, those first that others wait for."""
    services = yaml.safe_load(COMPOSE.read_text(encoding='utf-8'))
    volumes = set(services['volumes'])
    found = {}

    def add(name):
        service = services['services'][name]
        for needed in service.get('depends_on', {}):
            if needed not in found:
                add(needed)
        mounts = [Mount(*words[:2], readonly=words[2:] == ['ro']) for words in (text.split(':') for text in service.get('volumes', []))]
        unknown = [mount.source for mount in mounts if not mount.source.startswith('/') and mount.source not in volumes]
        if unknown:
            raise ValueError(f'{name}: there is no volume {unknown}')
        probe = service.get('healthcheck', {}).get('test')
        found[name] = Container(name, re.sub(r'\$\{IMAGE.*\}', 'program', service['image']), service.get('entrypoint'), service.get('command'),
                                service.get('environment', {}), mounts, set(service.get('cap_add', [])), set(service.get('cap_drop', [])),
                                'no-new-privileges:true' in service.get('security_opt', []), probe[1:] if probe else None)

    for name in services['services']:
        if name not in found:
            add(name)
    return found


def documents(kind):
    return [document for document in yaml.safe_load_all(KUBERNETES.read_text(encoding='utf-8')) if document['kind'] == kind]


def source_of_volume(volume):
    return volume['hostPath']['path'] if 'hostPath' in volume else volume['configMap']['name']


def of_pod(spec):
    """The containers of a pod, those first that run first."""
    volumes = {volume['name']: source_of_volume(volume) for volume in spec.get('volumes', [])}
    found = []
    for entry in [*spec.get('initContainers', []), *spec['containers']]:
        security = entry.get('securityContext', {})
        capabilities = security.get('capabilities', {})
        found.append(Container(
            entry['name'], entry['image'], entry.get('command'), entry.get('args'),
            {variable['name']: variable['value'] for variable in entry.get('env', [])},
            [Mount(volumes[mount['name']], mount['mountPath'], mount.get('readOnly', False)) for mount in entry.get('volumeMounts', [])],
            set(capabilities.get('add', [])), set(capabilities.get('drop', [])), security.get('allowPrivilegeEscalation') is False,
            entry.get('readinessProbe', {}).get('exec', {}).get('command')))
    return found


def daemon_set(name):
    """The containers of a DaemonSet."""
    spec = next(document for document in documents('DaemonSet') if document['metadata']['name'] == name)['spec']
    labels = spec['template']['metadata']['labels']
    if spec['selector']['matchLabels'] != labels:
        raise ValueError(f'{name}: the selector does not match the labels')
    return of_pod(spec['template']['spec'])


def resource():
    """Name of the resource that the device plugin offers, and the mounts that a container with it gets."""
    arguments = daemon_set('device-plugin')[-1].arguments
    options = dict(zip(arguments[::2], arguments[1::2]))
    device = yaml.safe_load(options['--device'])
    group, = device['groups']
    return f"{options['--domain']}/{device['name']}", [
        Mount(path['path'], path.get('mountPath', path['path']), path.get('readOnly', False)) for path in group['paths']]


def program():
    """The container of the pod that uses the devices, with what the device plugin gives it."""
    spec = documents('Pod')[0]['spec']
    container, = of_pod(spec)
    name, mounts = resource()
    if spec['containers'][0]['resources']['limits'] != {name: 1}:
        raise ValueError(f'the pod does not ask for one {name}')
    return dataclasses.replace(container, image='program', mounts=container.mounts + mounts)


def kubernetes():
    """The containers of a node in the order of their start, by name: the daemon's and the program's."""
    return {container.name: container for container in [*daemon_set('rocid'), program()]}


def config_maps():
    """{name: {file: text}}"""
    return {document['metadata']['name']: document['data'] for document in documents('ConfigMap')}
