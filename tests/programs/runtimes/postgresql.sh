#!/usr/bin/env bash
# PostgreSQL: a server whose backends sort, group and join in memory, two clients at once. Prints what must be the same every time.
# usage: postgresql.sh EMPTY_DIRECTORY MEBIBYTES   (not as root)
set -euo pipefail
here=$1 rows=$(($2 * 1048576 / 220))
bin=$(echo /usr/lib/postgresql/*/bin | tr ' ' '\n' | tail -n 1)
export PGHOST=$here PGUSER=tester PGDATABASE=postgres
"$bin/initdb" -D "$here/data" -A trust -U tester --no-sync --locale=C >"$here/initdb.log"
cat >>"$here/data/postgresql.conf" <<TEXT
unix_socket_directories = '$here'
listen_addresses = ''
work_mem = '1GB'
hash_mem_multiplier = 2
max_parallel_workers_per_gather = 0
fsync = off
autovacuum = off
TEXT
"$bin/pg_ctl" -D "$here/data" -w -l "$here/server.log" start >/dev/null
sql() { "$bin/psql" -qAt -v ON_ERROR_STOP=1 "$@"; }
sql <<SQL
create table t as select i, md5(i::text) as m, (i::bigint * 7919) % 100003 as k from generate_series(1, $rows) i;
analyze t;
select sum(hashtext(m)) from (select m from t order by m desc offset 1000) x;
select count(*), sum(c), max(n) from (select m, count(*) as c, max(k) as n from t group by m) x;
SQL
# Both hold half of the rows in a hash table, which the other half asks in random order.
client() { sql -c "select count(*), sum(a.k), sum(hashtext(b.m)) from t a join t b on a.m = md5(b.i::text) where a.i % 2 = $1 and b.i % 2 = $1" >"$here/client.$1"; }
client 0 & first=$!
client 1
wait "$first"
cat "$here"/client.*
"$bin/pg_ctl" -D "$here/data" -w -m fast stop >/dev/null
echo stopped
