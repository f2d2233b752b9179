"""Lists the files that a change modifies, compared with upstream or the main branch."""
import os
import pathlib
import subprocess

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
# Commits to compare with if there is no other base: in a clone of the main branch, as in CI.
LAST_COMMITS = 20


def git(*arguments):
    """The output of a git command in the tree, or None."""
    try:
        done = subprocess.run(['git', '-C', str(TOP), *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def merge_base():
    """The merge base with upstream, else with origin's default branch, origin/main or main. None: no such branch, or no commit
    since then."""
    head = (git('rev-parse', 'HEAD') or '').strip()
    for upstream in ('@{upstream}', 'origin/HEAD', 'origin/main', 'main'):
        found = git('merge-base', 'HEAD', upstream)
        if found and found.strip() != head:
            return found.strip()
    return None


def uncommitted():
    """Files that differ from HEAD, also untracked and deleted ones."""
    changed = git('diff', '--name-only', '--no-renames', '-z', 'HEAD') or ''
    untracked = git('ls-files', '--others', '--exclude-standard', '-z') or ''
    return {name for name in (changed + untracked).split('\0') if name}


def changed_files(base=None):
    """(what they are compared with, the sorted names, also of deleted files). `base`: a commit; default ROCI_TEST_BASE, the
    merge base, or, on a branch without commits of its own, HEAD if something is uncommitted, else the last LAST_COMMITS
    commits. None without a git repository, or where `base` is no commit."""
    if git('rev-parse', 'HEAD') is None:
        return None
    pending = uncommitted()
    base = base or os.environ.get('ROCI_TEST_BASE') or merge_base()
    if base is None:
        recent = (git('rev-list', '--first-parent', f'--max-count={LAST_COMMITS + 1}', 'HEAD') or '').split()
        base = 'HEAD' if pending else recent[-1]
    committed = git('diff', '--name-only', '--no-renames', '-z', base, 'HEAD')
    if committed is None:
        return None
    described = (git('log', '-1', '--format=%h (%s)', base) or base).strip()
    return described, sorted(pending | {name for name in committed.split('\0') if name})
