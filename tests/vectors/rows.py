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


def blocks(kind, halves):
    values, size = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (ROWS, COLUMNS // values, size), dtype=numpy.uint8)
    scales = (random.standard_normal((ROWS, COLUMNS // values, halves)) * 0.01).astype(numpy.float16)
    raw[:, :, :2 * halves] = scales.view(numpy.uint8).reshape(ROWS, COLUMNS // values, 2 * halves)
    return raw.reshape(ROWS, -1)


def text(array):
    return base64.b64encode(array.tobytes()).decode()


formats = {}
for name, halves in (("Q8_0", 1), ("Q4_K", 2)):
    kind = gguf.GGMLQuantizationType[name]
    raw = blocks(kind, halves)
    weights = gguf.quants.dequantize(raw, kind).astype(numpy.float64)
    formats[name] = {"rows": text(raw), "products": (x.astype(numpy.float64) @ weights.T).tolist()}
print(json.dumps({"rows": ROWS, "columns": COLUMNS, "vectors": VECTORS, "x": text(x), "formats": formats}))
