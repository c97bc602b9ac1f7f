# A join, a sort and groups of strings, by polars. usage: columns.py MEBIBYTES
import os
import sys

import polars as pl

rows = (int(sys.argv[1]) << 20) // 150
frame = pl.DataFrame({"i": pl.arange(0, rows, eager=True)}).with_columns(
    k=pl.col("i") * 7919 % 100003,
    text=pl.col("i").cast(pl.String).str.zfill(36),
)
print(frame.select(pl.col("k").sum(), pl.col("text").str.len_bytes().sum()).row(0))
groups = frame.group_by(pl.col("k") % 5000).agg(pl.col("text").n_unique().alias("n"), pl.col("i").max())
print(groups.sort("k").select(pl.len(), pl.col("n").sum(), pl.col("i").sum()).row(0))
print(frame.sort("text", descending=True).gather_every(1009).select(pl.col("i").sum()).row(0))
joined = frame.join(frame.select("i", other="k"), left_on="k", right_on="i")
print(joined.select(pl.len(), pl.col("other").sum()).row(0), flush=True)
os._exit(0)
