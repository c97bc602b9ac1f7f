#!/usr/bin/env bash
# MariaDB: a server with all tables in its buffer pool, filled, then read and changed in random order by four clients at once.
# Prints what must be the same every time. usage: mariadb.sh MEBIBYTES   (in an empty directory)
set -euo pipefail
here=$(mktemp -d) rows=$(($1 * 1048576 / 420))
trap 'rm -rf "$here"' EXIT
# A server deletes at its start what another one has in a directory for temporary tables that both use.
mkdir "$here/temporary"
export TMPDIR="$here/temporary"
[ "$(id -u)" != 0 ] || as_root=--user=root
mariadb-install-db --no-defaults ${as_root:-} --datadir="$here/data" --auth-root-authentication-method=normal --skip-test-db >"$here.install" 2>&1 ||
    { cat "$here.install" >&2; exit 1; }
rm "$here.install"
mariadbd --no-defaults ${as_root:-} --datadir="$here/data" --socket="$here/socket" --skip-networking --pid-file="$here/pid" \
    --innodb-buffer-pool-size="$(($1 + 64))M" --innodb-log-file-size=512M --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 \
    --innodb-use-native-aio=0 --tmp-table-size=256M --max-heap-table-size=256M >"$here/log" 2>&1 &
server=$!
trap 'kill -KILL "$server" 2>/dev/null || true; rm -rf "$here"' EXIT
sql() { mariadb --no-defaults --socket="$here/socket" --user=root --batch --skip-column-names "$@"; }
for _ in $(seq 3000); do
    if sql -e 'select 1' >/dev/null 2>&1; then break; fi
    kill -0 "$server" || { cat "$here/log" >&2; exit 1; }
    sleep 0.1
done
sql <<SQL
create database d;
use d;
create table d.t (i int primary key, k int, m char(252) character set latin1) engine=innodb;
insert into d.t select seq, seq * 7919 % 100003, repeat(lpad(seq, 9, '0'), 28) from seq_1_to_$rows;
create index by_k on d.t (k);
SQL
# Every fourth row is a client's own, so that what it reads does not depend on the others.
for mine in 0 1 2 3; do
    awk -v rows="$rows" -v x="$((mine + 1))" -v mine="$mine" 'BEGIN {
        for (n = 1; n <= 4000; n++) {
            x = (x * 69069 + 12345) % 2147483648; i = int(x / 16) % int(rows / 4) * 4 + mine
            if (n % 4 == 0) printf "update d.t set m = repeat(lpad(%d, 9, 0), 28) where i = %d;\n", x, i
            else printf "select crc32(m) from d.t where i = %d;\n", i
        }
    }' >"$here/statements.$mine"
done
clients=()
for mine in 0 1 2 3; do sql <"$here/statements.$mine" >"$here/client.$mine" & clients+=($!); done
for pid in "${clients[@]}"; do wait "$pid"; done
for mine in 0 1 2 3; do awk '{ sum = (sum * 31 + $1) % 4294967296 } END { print sum }' "$here/client.$mine"; done
sql <<SQL
select count(*), sum(k), sum(length(m)) from d.t;
select sum(crc32(m)) from (select m from d.t order by m desc limit 50000) x;
select count(*), sum(c) from (select k % 5000 g, count(distinct m) c from d.t group by 1) x;
check table d.t;
SQL
mariadb-admin --no-defaults --socket="$here/socket" --user=root shutdown
wait "$server"
echo stopped
