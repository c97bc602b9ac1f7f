#!/usr/bin/env bash
# Runs each conformance program natively and under Hinterland and compares outputs and exit codes; stops with 1 at the first
# difference.
#
#   run.sh LIBRARY [PROGRAM…]      LIBRARY: path of libhinterland.so; settings come from HINTERLAND_* in the environment
#   run.sh --via COMMAND [PROGRAM…]  COMMAND: a prefix such as 'hinterland run --local 16M --', in one word
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

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
    heap threads containers mappings remap break files forking loading signals calls rare buffers waiting cancelling
)

cd "$here"
for program in "${programs[@]}"; do
    if [ -f "$program.cpp" ]; then
        g++ -std=c++20 -O1 -w -o "$build/$program" "$program.cpp" -pthread
    else
        gcc -std=gnu17 -O1 -fno-builtin -w -o "$build/$program" "$program.c" -pthread -ldl
    fi
    arguments=()
    if [ "$program" = loading ]; then
        gcc -std=gnu17 -O1 -w -shared -fPIC -o "$build/plugin.so" plugin.c
        arguments=("$build/plugin.so")
    fi
    native=0 managed=0
    "$build/$program" "${arguments[@]}" >"$build/native" 2>&1 || native=$?
    timeout 600 "${under[@]}" "$build/$program" "${arguments[@]}" >"$build/managed" 2>"$build/messages" || managed=$?
    if ! diff -u --label native --label managed "$build/native" "$build/managed" || [ $native -ne $managed ]; then
        echo "$program: differs from native (exit code $native natively, $managed managed)" >&2
        tail -n 20 "$build/messages" >&2
        exit 1
    fi
    echo "$program: $(wc -l <"$build/native") lines equal, exit code $native"
done
