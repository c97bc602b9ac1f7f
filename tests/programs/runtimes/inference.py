# Inference by onnxruntime: embeddings gathered in random order from a table that is most of the memory, two layers, a softmax; with
# random weights, on one thread. usage: inference.py MEBIBYTES
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(1)
width, rows = 1024, (int(sys.argv[1]) << 20) // 4096
table = rng.standard_normal((rows, width), dtype=np.float32)
weights = {
    "up": rng.standard_normal((width, 2048), dtype=np.float32) / 32,
    "down": rng.standard_normal((2048, 16), dtype=np.float32) / 45,
}
nodes = [
    helper.make_node("Gather", ["table", "tokens"], ["gathered"]),
    helper.make_node("MatMul", ["gathered", "up"], ["hidden"]),
    helper.make_node("Relu", ["hidden"], ["active"]),
    helper.make_node("MatMul", ["active", "down"], ["scores"]),
    helper.make_node("Softmax", ["scores"], ["chances"]),
]
graph = helper.make_graph(
    nodes,
    "inference",
    [
        helper.make_tensor_value_info("table", TensorProto.FLOAT, [rows, width]),
        helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n"]),
    ],
    [helper.make_tensor_value_info("chances", TensorProto.FLOAT, ["n", 16])],
    [numpy_helper.from_array(value, name) for name, value in weights.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
total = 0
for step in range(600):
    (chances,) = session.run(None, {"table": table, "tokens": rng.integers(0, rows, 64)})
    total = (total * 31 + int(chances.argmax(axis=1).sum())) & 0xFFFFFFFF
print(f"{rows} rows, {total}, {float(chances.max()):.5f}")
