#!/usr/bin/env bash
# PostgreSQL: a cluster is made, loaded by pgbench, and queried by sorts, joins, aggregates and windows that take memory.
# Prints what must be the same every time. usage: postgres.sh EMPTY_DIRECTORY   (not as root)
set -euo pipefail
here=$1
bin=$(echo /usr/lib/postgresql/*/bin | tr ' ' '\n' | tail -n 1)
export PGHOST=$here PGUSER=tester PGDATABASE=postgres

"$bin/initdb" -D "$here/data" -A trust -U tester --no-sync --locale=C >"$here/initdb.log"
cat >>"$here/data/postgresql.conf" <<TEXT
unix_socket_directories = '$here'
listen_addresses = ''
work_mem = '48MB'
maintenance_work_mem = '48MB'
shared_buffers = '16MB'
fsync = off
TEXT
"$bin/pg_ctl" -D "$here/data" -w -l "$here/server.log" start >/dev/null

"$bin/psql" -qAt -v ON_ERROR_STOP=1 <<'SQL'
create table t as select i, md5(i::text) as m, (i::bigint * 7919) % 100003 as k from generate_series(1, 200000) i;
select sum(hashtext(m)) from (select m from t order by m desc limit 100000) x;
select count(*), sum(c) from (select k % 5000 as g, count(distinct m) as c from t group by 1) x;
select count(*), sum(a.i) from t a join t b on a.k = b.i where b.m < '8';
create index on t (m);
select count(*) from (select row_number() over (partition by k % 100 order by m) r from t) x where r < 10;
select length(string_agg(m, ',' order by i)), md5(string_agg(m, ',' order by i)) from t;
select md5(array_agg(k order by m)::text) from t;
begin; update t set k = k + 1 where i % 3 = 0; savepoint s; delete from t where i % 2 = 0; rollback to s; commit;
select count(*), sum(k) from t;
SQL
"$bin/pgbench" -q -i -s 1 >/dev/null 2>&1
"$bin/pgbench" -n -c 4 -j 2 -t 50 2>&1 | grep 'actually processed'
"$bin/psql" -qAt -c 'select count(*) from pgbench_history' \
    -c 'select sum(abalance) = (select sum(delta) from pgbench_history) from pgbench_accounts'
"$bin/pg_ctl" -D "$here/data" -w -m fast stop >/dev/null
echo stopped
