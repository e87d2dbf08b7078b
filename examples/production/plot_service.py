"""
From notebook to service
========================

Fit, save, export to plain NumPy and to ONNX, put a small HTTP server around it, and measure how long a request takes.
Everything in one file, and no web framework.
"""

# %%
# Fit and export
# --------------

import json
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime

import vpboost
from vpboost.export import to_numpy, to_onnx

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(500, 6))
y = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + 0.05 * rng.normal(size=500)
model = vpboost.VPBoostRegressor(n_chains=1).fit(X, y)

folder = Path(tempfile.mkdtemp())
model.save_model(folder / "model.vpboost", training_rows=False)
to_onnx(model, folder / "model.onnx")
to_numpy(model, folder / "plain")
for path in sorted(p for p in folder.rglob("*") if p.is_file()):
    print(f"{path.relative_to(folder)}: {path.stat().st_size / 1024:.0f} kB")

# %%
# Three ways to predict
# ---------------------
# The model file with vpboost; ``predictor.py``, one file that needs NumPy alone; and ONNX, for any language. They
# agree.

sys.path.insert(0, str(folder / "plain"))
from predictor import Predictor

loaded = vpboost.load_model(folder / "model.vpboost")
plain = Predictor(folder / "plain" / "model.vpboost")
session = onnxruntime.InferenceSession(folder / "model.onnx")


def by_onnx(rows):
    return session.run(["prediction"], {"X": rows.astype(np.float32)})[0].ravel()


for name, predict in (("model file", loaded.predict), ("NumPy", plain.predict), ("ONNX", by_onnx)):
    print(f"{name}: differs from the model by at most {np.abs(predict(X) - model.predict(X)).max():.1e}")

# %%
# The service
# -----------
# It takes rows as JSON and returns predictions with bounds. What comes in from outside is checked before it is used.


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # answer at once

    def do_POST(self):
        try:
            rows = np.array(json.loads(self.rfile.read(min(int(self.headers["Content-Length"]), 1 << 20))), dtype=float)
            if rows.ndim != 2 or rows.shape[1] != 6:
                raise ValueError("rows must have 6 numbers each")
            low, high = plain.predict_interval(rows, coverage=0.9)
            status, answer = (
                200,
                {"prediction": plain.predict(rows).tolist(), "low": low.tolist(), "high": high.tolist()},
            )
        except (TypeError, ValueError) as error:
            status, answer = 400, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Say nothing."""


server = ThreadingHTTPServer(("localhost", 0), Service)  # 0: any free port
threading.Thread(target=server.serve_forever, daemon=True).start()
connection = HTTPConnection("localhost", server.server_port)


def ask(rows):
    connection.request("POST", "/", json.dumps(rows))
    with connection.getresponse() as reply:
        return reply.status, json.load(reply)


print(ask(X[:2].tolist()))
print(ask([[1, 2]]))

# %%
# Latency
# -------
# Two hundred requests of one row each, and single predictions without a server around them. Milliseconds depend on the
# machine, and this page was built on one that had other things to do.


def milliseconds(call, times=200):
    taken = np.empty(times)
    for i in range(times):
        began = time.perf_counter()
        call(i)
        taken[i] = time.perf_counter() - began
    return 1e3 * taken


latency = {
    "NumPy": milliseconds(lambda i: plain.predict(X[i : i + 1])),
    "ONNX": milliseconds(lambda i: by_onnx(X[i : i + 1])),
    "vpboost": milliseconds(lambda i: loaded.predict(X[i : i + 1])),
    "HTTP request\n(NumPy, with bounds)": milliseconds(lambda i: ask(X[i : i + 1].tolist())),
}
figure, ax = plt.subplots(figsize=(7, 3.2))
ax.boxplot(list(latency.values()), orientation="horizontal", tick_labels=list(latency), showfliers=False)
ax.set(xlabel="milliseconds for one row", xscale="log")
plt.show()
for name, taken in latency.items():
    words = " ".join(name.split())
    print(f"{words}: median {np.median(taken):.2f} ms, 99 of 100 below {np.quantile(taken, 0.99):.2f} ms")

connection.close()
server.shutdown()
server.server_close()

status, answer = 200, plain.predict(X[:3])
assert np.allclose(answer, model.predict(X[:3]), atol=1e-5)
