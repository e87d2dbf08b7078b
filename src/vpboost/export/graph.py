"""A thin layer over ``onnx.helper``: operations return the names of their results."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

TYPES = {
    **{"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64},
    **{"uint64": TensorProto.UINT64, "bool": TensorProto.BOOL, "string": TensorProto.STRING},
}
#: Versions of the operator sets; old enough for any runtime of the last years.
OPERATORS = {"": 17, "ai.onnx.ml": 3}


class Graph:
    """An ONNX graph under construction. ``dtype`` is the precision of the learners."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def input(self, name: str, dtype: str, shape: list[Any]) -> str:
        """Declare an input; "rows" stands for any number."""
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
        return name

    def output(self, name: str, value: str, dtype: str, shape: list[Any]) -> None:
        """Declare an output."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=name))
        self.outputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """Return the name of a constant; by default of the learners' precision."""
        name = f"vpboost/constant_{len(self.constants)}"
        if dtype == "string":
            texts = [text.encode() for text in value]
            self.constants.append(helper.make_tensor(name, TensorProto.STRING, [len(texts)], texts))
        else:
            self.constants.append(numpy_helper.from_array(np.asarray(value, dtype or self.dtype), name))
        return name

    def __call__(self, operator: str, *inputs: str, domain: str = "", n_results: int = 1, **attributes: Any) -> str:
        """Add an operation; return the name of its result, the first one if it has several."""
        name = f"vpboost/{operator.lower()}_{len(self.nodes)}"
        results = [name, *(f"{name}_{i}" for i in range(1, n_results))]
        self.nodes.append(helper.make_node(operator, list(inputs), results, name, domain=domain, **attributes))
        return name

    def cast(self, value: str, dtype: str) -> str:
        """Convert to another type."""
        return self("Cast", value, to=TYPES[dtype])

    def reshape(self, value: str, shape: list[int]) -> str:
        """Change the shape."""
        return self("Reshape", value, self.constant(shape, "int64"))

    def model(self, name: str, facts: dict[str, str]) -> Any:
        """Return the finished model."""
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants)
        imports = [helper.make_opsetid(domain, version) for domain, version in OPERATORS.items()]
        model = helper.make_model(graph, opset_imports=imports, producer_name="vpboost", ir_version=9)
        helper.set_model_props(model, facts)
        return model
