"""usage: transformer.py MIB      texts go through the layers of a transformer whose weights take MIB, by onnxruntime with one thread.

The weights are inputs of the graph, in buffers of this program's."""
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

WIDTH, TOKENS, TEXTS = 512, 64, 6
# Queries, keys, values and their sum; up to four times the width and down again.
SIDES = {"query": (WIDTH, WIDTH), "key": (WIDTH, WIDTH), "value": (WIDTH, WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}


def layer(number: int, given: str) -> tuple[list, str]:
    """The nodes of a layer, and the name of what comes out."""
    at = lambda name: f"{name}-{number}"
    steps = [
        ("LayerNormalization", [given, "scale"], "normal"), ("MatMul", [at("normal"), at("query")], "queries"), ("MatMul", [at("normal"), at("key")], "keys"),
        ("MatMul", [at("normal"), at("value")], "values"), ("Transpose", [at("keys")], "turned"), ("MatMul", [at("queries"), at("turned")], "scores"),
        ("Div", [at("scores"), "root"], "scaled"), ("Softmax", [at("scaled")], "weights"), ("MatMul", [at("weights"), at("values")], "heads"),
        ("MatMul", [at("heads"), at("out")], "attention"), ("Add", [given, at("attention")], "attended"), ("LayerNormalization", [at("attended"), "scale"], "again"),
        ("MatMul", [at("again"), at("up")], "wide"), ("Relu", [at("wide")], "active"), ("MatMul", [at("active"), at("down")], "narrow"),
        ("Add", [at("attended"), at("narrow")], "text"),
    ]
    return [helper.make_node(kind, inputs, [at(name)]) for kind, inputs, name in steps], at("text")


chance = np.random.default_rng(1)
count = int(sys.argv[1]) * 2**20 // sum(4 * rows * columns for rows, columns in SIDES.values())
shapes = {"text": (TOKENS, WIDTH), "scale": (WIDTH,), "root": (1,)} | {f"{name}-{number}": side for number in range(count) for name, side in SIDES.items()}
nodes, result = [], "text"
for number in range(count):
    more, result = layer(number, result)
    nodes += more
of = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
graph = helper.make_graph(nodes, "transformer", [of(*named) for named in shapes.items()], [of(result, (TOKENS, WIDTH))])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
given = {name: chance.standard_normal(shape, dtype=np.float32) / np.float32(WIDTH**0.5) for name, shape in shapes.items()}
given |= {"scale": np.ones(WIDTH, np.float32), "root": np.array([WIDTH**0.5], np.float32)}
found = []
for _ in range(TEXTS):
    given["text"] = chance.standard_normal((TOKENS, WIDTH), dtype=np.float32)
    found += session.run(None, given)[0].argmax(axis=1).tolist()
print(count, sum(found))
