"""Group-by and join, with pandas or DuckDB, on integers so that sums are exact in every order.

usage: frames.py pandas|duckdb ROWS
"""
import hashlib
import sys


def with_pandas(rows: int) -> None:
    import numpy as np
    import pandas as pd

    i = np.arange(rows, dtype=np.int64)
    orders = pd.DataFrame({"id": i, "customer": i * 7919 % (rows // 20 + 1), "amount": i * 31 % 1009})
    customers = pd.DataFrame({"customer": np.arange(rows // 20 + 1, dtype=np.int64)})
    customers["region"] = (customers["customer"] * 13 % 17).astype("int32")
    joined = orders.merge(customers, on="customer", how="inner")
    print("joined", len(joined), int(joined["amount"].sum()))
    by_region = joined.groupby("region")["amount"].agg(["count", "sum", "min", "max"])
    print(by_region.to_string())
    by_customer = joined.groupby("customer")["amount"].sum().sort_values(kind="stable")
    print(hashlib.sha256(by_customer.to_numpy().tobytes()).hexdigest())
    top = joined.sort_values(["amount", "id"], kind="stable").tail(5)
    print(top.to_string(index=False))


def with_duckdb(rows: int) -> None:
    import duckdb

    db = duckdb.connect(":memory:", config={"threads": 2, "autoinstall_known_extensions": False})
    db.execute("SET preserve_insertion_order = true")
    db.execute(
        "CREATE TABLE orders AS SELECT i AS id, hash(i) % ? AS customer, i * 31 % 1009 AS amount, "
        "'order ' || hash(i + 1) AS note FROM range(?) t(i)",
        [rows // 20 + 1, rows],
    )
    db.execute("CREATE TABLE customers AS SELECT i AS customer, i * 13 % 17 AS region FROM range(?) t(i)", [rows // 20 + 1])
    query = (
        "SELECT region, count(*), sum(amount), min(note), max(note), count(DISTINCT orders.customer) "
        "FROM orders JOIN customers USING (customer) GROUP BY region ORDER BY region"
    )
    for row in db.execute(query).fetchall():
        print(row)
    query = "SELECT customer, sum(amount) s, max(id) FROM orders GROUP BY customer ORDER BY s DESC, customer LIMIT 20"
    for row in db.execute(query).fetchall():
        print(row)
    print(db.execute("SELECT bit_xor(hash(note || id)) FROM orders").fetchall())


{"pandas": with_pandas, "duckdb": with_duckdb}[sys.argv[1]](int(sys.argv[2]))
