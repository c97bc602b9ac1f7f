"""usage: tables.py ROWS     an SQL database in memory: two tables filled, an index, joins by it, groups, updates."""
import sqlite3
import sys

rows = int(sys.argv[1])
base = sqlite3.connect(":memory:")
base.execute("create table items (id integer primary key, shop integer, price integer, words text)")
base.execute("create table sales (item integer, amount integer)")
# Multiplying by an odd number below a power of two: every item is sold, in no order that the table has.
bits = (rows - 1).bit_length()
numbers = "with recursive n(i) as (select 0 union all select i + 1 from n where i + 1 < ?)"
base.execute(f"insert into items {numbers} select i, i * 7919 % 5003, i * 31 % 997, printf('item %0120d', i) from n", (rows,))
base.execute(f"insert into sales {numbers} select (i * 2654435761 & {2**bits - 1}) % ?, i % 13 from n", (rows, rows))
base.execute("create index by_shop on items (shop)")
for question in (
    "select count(*), sum(amount * price), max(words) from sales join items on items.id = sales.item",
    "select shop, count(*), sum(price) from items group by shop order by 3 desc limit 3",
    "select sum(length(words)) from items where shop % 50 = 7",
):
    print(base.execute(question).fetchall())
print(base.execute("update items set price = price + 1 where id % 17 = 3").rowcount)
print(base.execute("select sum(price) from items").fetchall())
