"""Completion scripts for bash, zsh and fish."""
import re

# Where a daemon's devices are listed: the directories of roci's --runtime-dir, in its order.
DEVICES = '''_rocinante_devices() {
    local directory
    for directory in "${ROCI_RUNTIME_DIR-}" "${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/roci}" "/tmp/roci-$UID" /run/roci; do
        [ -n "$directory" ] && [ -d "$directory/sysfs/class/infiniband" ] || continue
        command ls -- "$directory/sysfs/class/infiniband"
        return
    done
}
'''


def words(option, command):
    """The words that an option or argument takes, or []."""
    constraint = option['type'].partition(':')[2]
    if constraint.startswith('{'):
        return constraint[1:-1].split(',')
    if option['positional'] and not option['type']:
        return [option['positional']]  # a keyword
    listed = re.search(rf'^{option["positional"]} is one of\n((?:  .*\n?)+)', command['footer'], re.MULTILINE)
    return [line.split()[0] for line in listed[1].splitlines()] if option['positional'] and listed else []


def kind_of(option, command):
    """What to offer for a value: 'words a b', 'files', 'directories', 'devices', or ''."""
    offered = words(option, command)
    if offered:
        return 'words ' + ' '.join(offered)
    names = {option['positional'], option['type']}
    for kind, of_kind in (('devices', {'DEV', 'DEVICE', 'TARGET'}), ('files', {'FILE'}), ('directories', {'DIR'})):
        if names & of_kind:
            return kind
    return ''


def commands_in(command, path=()):
    """(path, command) of a program and all subcommands."""
    path = (*path, command['name'])
    yield path, command
    for sub in command['commands']:
        yield from commands_in(sub, path)


def arguments_of(command):
    return [option for option in command['options'] if option['positional'] and not option['names']]


def options_of(command):
    return [option for option in command['options'] if option['names']]


def bash_offer(kind):
    kind, _, rest = kind.partition(' ')
    return {'words': f"COMPREPLY=($(compgen -W '{rest}' -- \"$current\"))",
            'devices': 'COMPREPLY=($(compgen -W "$(_rocinante_devices)" -- "$current"))',
            'files': 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current"))',
            'directories': 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$current"))'}.get(kind, ':')


def bash_command(path, command):
    """Two cases of `$path`: of an option before the current word, and of the current word."""
    path = ' '.join(path)
    values = [f"        '{path} {name}') {bash_offer(kind_of(option, command))}; return ;;\n"
              for option in options_of(command) if option['type'] for name in option['names']]
    names = ' '.join(name for option in options_of(command) for name in option['names'])
    offers = [f"        '{path} -') COMPREPLY=($(compgen -W '{names}' -- \"$current\")) ;;\n"]
    for number, option in enumerate(arguments_of(command)):
        offers.append(f"        '{path} {number}') {bash_offer(kind_of(option, command))} ;;\n")
    if command['commands']:
        offers.append(f"        '{path} 0') {bash_offer('words ' + ' '.join(sub['name'] for sub in command['commands']))} ;;\n")
    if command['runs_program']:
        offers.append(f"        '{path} 0') COMPREPLY=($(compgen -c -- \"$current\")) ;;\n")
    return values, offers


def bash(program):
    every = list(commands_in(program))
    values, offers = [], []
    for path, command in every:
        of_values, of_offers = bash_command(path, command)
        values += of_values
        offers += of_offers
    valued = '|'.join(f"'{' '.join(path)} {name}'" for path, command in every for option in options_of(command)
                      if option['type'] for name in option['names'])
    deeper = '|'.join(f"'{' '.join(path)}'" for path, _command in every[1:]) or "''"
    runs = '|'.join(f"'{' '.join(path)}'" for path, command in every if command['runs_program']) or "''"
    name = program['name']
    return f'''# bash completion of {name}. Generated from its --help.
# shellcheck shell=bash disable=SC2207
{DEVICES}
_{name}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path={name} number=0 word i
    COMPREPLY=()
    if [ "$current" = = ]; then current=''; elif [ "$previous" = = ]; then previous=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        case "$path $word" in
            {valued}) [ "${{COMP_WORDS[i+1]-}}" != = ] || ((i++)); ((i++)); continue ;;
            {deeper}) path="$path $word"; continue ;;
        esac
        case $word in -* | =) continue ;; esac
        case $path in
            {runs})
                if declare -F _command_offset >/dev/null; then _command_offset "$i"; else compopt -o default 2>/dev/null; fi
                return ;;
        esac
        ((number += 1))
    done
    case "$path $previous" in
{''.join(values)}    esac
    case $current in -*) number=- ;; esac
    case "$path $number" in
{''.join(offers)}    esac
}}
complete -F _{name} {name}
'''


def brief(text):
    """The first sentence, without characters that zsh's _arguments or quotes would take."""
    text = re.split(r'\. |; | \(|: ', text.replace('\n', ' '), maxsplit=1)[0].rstrip('.')
    return re.sub(r"[\[\]:'\\]", '', text)


def zsh_action(kind):
    kind, _, rest = kind.partition(' ')
    return {'words': f'({rest})', 'devices': '($(_rocinante_devices))', 'files': '_files', 'directories': '_files -/'}.get(kind, ' ')


def zsh_option(option, command):
    help_text = brief(option['help'])
    value = f":{option['type'].partition(':')[0].lower()}:{zsh_action(kind_of(option, command))}" if option['type'] else ''
    excluded = ' '.join(option['names'] + option['excludes'])
    star = '*' if option['repeatable'] else ''
    return [f"'{star or f'({excluded})'}{name}{'=' if value and name.startswith('--') else '+' if value else ''}[{help_text}]{value}'"
            for name in option['names']]


def zsh_function(path, command):
    """The completion of one command; it calls those of its subcommands."""
    specs = [spec for option in options_of(command) for spec in zsh_option(option, command)]
    for number, option in enumerate(arguments_of(command), 1):
        colons = ':' if option['required'] else '::'
        specs.append(f"'{number}{colons}{option['positional']}:{zsh_action(kind_of(option, command))}'")
    calls = ''
    if command['runs_program']:
        specs += ["'(-)1:program:_command_names -e'", "'*::arguments:_normal'"]
    elif command['commands']:
        specs += ["'1:command:->command'", "'*::argument:->argument'"]
        described = ' '.join(f"'{sub['name']}:{brief(sub['about'])}'" for sub in command['commands'])
        cases = ''.join(f"        {sub['name']}) _{'_'.join([*path, sub['name']])} ;;\n" for sub in command['commands'])
        calls = (f'    case $state in\n    command) local -a commands=({described}); _describe command commands ;;\n'
                 f'    argument) case $line[1] in\n{cases}        esac ;;\n    esac\n')
    arguments = ' \\\n        '.join(specs)
    return (f"_{'_'.join(path)}() {{\n    local curcontext=$curcontext state line\n    local -A opt_args\n"
            f"    _arguments -C -s -S \\\n        {arguments}\n{calls}}}\n")


def zsh(program):
    name = program['name']
    functions = '\n'.join(zsh_function(path, command) for path, command in commands_in(program))
    return f'#compdef {name}\n# zsh completion of {name}. Generated from its --help.\n{DEVICES}\n{functions}\n_{name} "$@"\n'


FISH_DEVICES = '''function __rocinante_devices
    for directory in $ROCI_RUNTIME_DIR $XDG_RUNTIME_DIR/roci /tmp/roci-(id -u) /run/roci
        test -d $directory/sysfs/class/infiniband; or continue
        command ls -- $directory/sysfs/class/infiniband
        return
    end
end
'''


def fish_action(kind):
    kind, _, rest = kind.partition(' ')
    return {'words': f"-xa '{rest}'", 'devices': "-xa '(__rocinante_devices)'", 'files': '-rF',
            'directories': "-xa '(__fish_complete_directories)'"}.get(kind, '-x')


def fish_command(path, command):
    """The lines of one command."""
    start = f"complete -c {path[0]} -n '__{path[0]}_at \"{' '.join(path)}\"'"
    lines = []
    for option in options_of(command):
        names = ' '.join(f'-l {name[2:]}' if name.startswith('--') else f'-s {name[1:]}' for name in option['names'])
        value = f" {fish_action(kind_of(option, command))}" if option['type'] else ''
        lines.append(f"{start} {names}{value} -d '{brief(option['help'])}'")
    for option in arguments_of(command):
        lines.append(f"{start} {fish_action(kind_of(option, command))} -d '{brief(option['help'])}'")
    lines += [f"{start} -xa {sub['name']} -d '{brief(sub['about'])}'" for sub in command['commands']]
    if command['runs_program']:
        lines.append(f"{start} -xa '(__fish_complete_subcommand --fcs-skip={len(path)})'")
    return lines


def fish(program):
    name, every = program['name'], list(commands_in(program))
    paths = ' '.join(f"'{' '.join(path)}'" for path, _command in every)
    lines = [line for path, command in every for line in fish_command(path, command)]
    return f'''# fish completion of {name}. Generated from its --help.
{FISH_DEVICES}
function __{name}_at
    set -l path {name}
    for token in (commandline -opc)[2..-1]
        contains -- "$path $token" {paths}; and set path "$path $token"
    end
    test "$path" = $argv[1]
end
complete -c {name} -f
''' + '\n'.join(lines) + '\n'
