"""Makes rows.json: rows in formats of model files, and their products with vectors, by packages that are not ours.

    pip install gguf==0.19.0 numpy
    python3 rows.py > rows.json

Numbers of blocks are random; scales are small enough for products of a few units. gguf decodes, numpy sums in doubles."""
import base64
import json

import gguf
import numpy

ROWS, COLUMNS, VECTORS = 7, 512, 2
random = numpy.random.default_rng(20261128)
x = random.standard_normal((VECTORS, COLUMNS)).astype(numpy.float32)


def blocks(kind, halves, at, scale):
    values, size = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (ROWS, COLUMNS // values, size), dtype=numpy.uint8)
    scales = (random.standard_normal((ROWS, COLUMNS // values, halves)) * scale).astype(numpy.float16)
    raw[:, :, at:at + 2 * halves] = scales.view(numpy.uint8).reshape(ROWS, COLUMNS // values, 2 * halves)
    return raw.reshape(ROWS, -1)


def numbers(name):
    values = random.standard_normal((ROWS, COLUMNS)).astype(numpy.float32)
    if name == "F32":
        return values.view(numpy.uint8), values
    if name == "F16":
        return values.astype(numpy.float16).view(numpy.uint8), values.astype(numpy.float16)
    high = (values.view(numpy.uint32) >> 16).astype(numpy.uint16)
    return high.view(numpy.uint8), (high.astype(numpy.uint32) << 16).view(numpy.float32)


def text(array):
    return base64.b64encode(array.tobytes()).decode()


formats = {}
# How many f16 a block has, where they begin, and how large they are.
for name, halves, at, scale in (("Q8_0", 1, 0, 0.01), ("Q4_K", 2, 0, 0.01), ("Q4_0", 1, 0, 0.01), ("Q5_K", 2, 0, 0.01),
                                ("Q6_K", 1, 208, 0.001)):
    kind = gguf.GGMLQuantizationType[name]
    raw = blocks(kind, halves, at, scale)
    weights = gguf.quants.dequantize(raw, kind).astype(numpy.float64)
    formats[name] = {"rows": text(raw), "products": (x.astype(numpy.float64) @ weights.T).tolist()}
for name in ("F32", "F16", "BF16"):
    raw, weights = numbers(name)
    formats[name] = {"rows": text(raw), "products": (x.astype(numpy.float64) @ weights.astype(numpy.float64).T).tolist()}
print(json.dumps({"rows": ROWS, "columns": COLUMNS, "vectors": VECTORS, "x": text(x), "formats": formats}))
