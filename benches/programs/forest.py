"""usage: forest.py MIB      a random forest of scikit-learn's: trained on a table of about half of MIB, then asked for every row."""
import sys

import numpy
from sklearn.ensemble import RandomForestClassifier

COLUMNS = 20
# The table as doubles and as the floats that trees read, and what trees and bootstrap samples take.
ROW_BYTES = COLUMNS * 12 + 700
rows = (int(sys.argv[1]) - 90) * 2**20 // ROW_BYTES
chance = numpy.random.default_rng(1)
table = chance.standard_normal((rows, COLUMNS))
kinds = (table[:, :5].sum(axis=1) + chance.standard_normal(rows) > 0).astype(int) + (table[:, 7] > 1)
forest = RandomForestClassifier(n_estimators=12, random_state=1, n_jobs=1).fit(table, kinds)
found = forest.predict(table)
print(rows, int((found == kinds).sum()), int(found.sum()), sum(tree.tree_.node_count for tree in forest.estimators_))
