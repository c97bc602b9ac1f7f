#!/usr/bin/env bash
# Pipes, subshells, background jobs and job control; prints the same every time.
set -u
set -m
numbers() { seq 1 "$1" | sed 's/$/ and some text to sort by/'; }

numbers 200000 | sort -r -S 40M | awk '{ sum += $1 } END { print "sum", sum }'
echo "lines $(numbers 50000 | grep -c 7)"

# Jobs in the background, each a pipe of its own.
for job in 1 2 3; do
    (numbers $((job * 20000)) | sort -S 20M | tail -n 1 | cut -d ' ' -f 1 >"job.$job") &
done
wait
cat job.1 job.2 job.3

# A job is stopped, seen as stopped, continued and brought to its end.
sleep 0.3 &
kill -STOP %%
sleep 0.1
jobs %% | grep -q Stopped && echo "stopped"
kill -CONT %%
wait %% && echo "continued"

# A killed job's status; a trap; a subshell's own variables; process substitution.
sleep 60 &
kill -TERM $!
wait $!
echo "status $?"
trap 'echo trapped' USR1
kill -USR1 $$
value=outer
(value=inner; echo "in $value")
echo "out $value"
diff <(seq 1 1000) <(seq 1 1000 | sort -n) && echo "same"
coproc { while read -r line; do echo "heard $line"; done; }
echo hello >&"${COPROC[1]}"
read -r answer <&"${COPROC[0]}"
echo "$answer"
