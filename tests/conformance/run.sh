#!/usr/bin/env bash
# Runs each conformance program natively and under Hinterland and compares outputs and exit codes; stops with 1 at the first
# difference.
#
#   run.sh LIBRARY [PROGRAM…]      LIBRARY: path of libhinterland.so; settings come from HINTERLAND_* in the environment
#   run.sh --via COMMAND [PROGRAM…]  COMMAND: a prefix such as 'hinterland run --local 16M --', in one word
#   run.sh --keep DIR …            built programs and native outputs stay in DIR, and serve again until their sources change;
#                                  several may run at a time
set -euo pipefail

# The programs look at the dispositions that they begin with: not those that whatever runs the tests has left (nohup ignores SIGHUP).
[ -n "${DEFAULT_SIGNALS:-}" ] || DEFAULT_SIGNALS=set exec env --default-signal bash "$0" "$@"

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$work
if [ "${1:-}" = --keep ]; then
    build=$(realpath "${2:?a directory}")
    shift 2
fi

if [ "${1:-}" = --via ]; then
    read -r -a under <<<"${2:?a command}"
    shift 2
else
    library=$(realpath "${1:?the path of libhinterland.so}")
    export HINTERLAND_LOCAL="${HINTERLAND_LOCAL:-1G}"
    under=(env "LD_PRELOAD=$library")
    shift
fi
programs=("$@")
[ $# -gt 0 ] || programs=(
    heap threads containers mappings remap numbers instruction break files forking loading signals calls rare buffers waiting cancelling
)

# stale FILE SOURCE…: whether FILE is missing or older than a source.
stale() {
    local file=$1 source
    shift
    [ -f "$file" ] || return 0
    for source in "$@"; do
        if [ "$source" -nt "$file" ]; then return 0; fi
    done
    return 1
}

cd "$here"
for program in "${programs[@]}"; do
    arguments=()
    [ "$program" != loading ] || arguments=("$build/plugin.so")
    exec {lock}>"$build/$program.lock"
    flock "$lock"
    if stale "$build/$program.code" "$program".c* *.h plugin.c run.sh; then
        rm -f "$build/$program.code"
        # -U: some distributions' compilers check copies by themselves, and take a block that is used to its last usable byte for an overflow.
        if [ -f "$program.cpp" ]; then
            g++ -U_FORTIFY_SOURCE -std=c++20 -O1 -w -o "$build/$program" "$program.cpp" -pthread
        else
            gcc -U_FORTIFY_SOURCE -std=gnu17 -O1 -fno-builtin -w -o "$build/$program" "$program.c" -pthread -ldl
        fi
        [ "$program" != loading ] || gcc -U_FORTIFY_SOURCE -std=gnu17 -O1 -w -shared -fPIC -o "$build/plugin.so" plugin.c
        native=0
        "$build/$program" "${arguments[@]}" >"$build/$program.native" 2>&1 || native=$?
        echo "$native" >"$build/$program.code"
    fi
    exec {lock}>&-
    read -r native <"$build/$program.code"
    managed=0
    timeout 600 "${under[@]}" "$build/$program" "${arguments[@]}" >"$work/managed" 2>"$work/messages" || managed=$?
    if ! diff -u --label native --label managed "$build/$program.native" "$work/managed" || [ $native -ne $managed ]; then
        echo "$program: differs from native (exit code $native natively, $managed managed)" >&2
        tail -n 20 "$work/messages" >&2
        exit 1
    fi
    echo "$program: $(wc -l <"$build/$program.native") lines equal, exit code $native"
done
