"""A small language for ONNX graphs: wires with operators, deduplicated constants, and branches."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

DOUBLE, FLOAT, INT64, BOOL = TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Operand = Any  # a wire, an array or a number; Any, because arrays have these operators too


class Graph:
    """Collects the nodes and constants of a graph."""

    def __init__(self, outer: "Graph | None" = None) -> None:
        self.nodes: list[NodeProto] = []
        self._root: Graph = self if outer is None else outer._root
        if outer is None:
            self._names = 0
            self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
            self.initializers: list[TensorProto] = []

    def wire(self, name: str) -> "Wire":
        return Wire(self, name)

    def constant(self, value: Any) -> "Wire":
        """A constant; equal ones are stored once."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        root = self._root
        if key not in root._constants:
            root._constants[key] = f"c{len(root.initializers)}"
            root.initializers.append(numpy_helper.from_array(array, root._constants[key]))
        return Wire(self, root._constants[key])

    def __call__(self, kind: str, *inputs: Any, **attributes: Any) -> "Wire":
        """The output of a new node; inputs are wires or constants."""
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, count: int, *inputs: Any, **attributes: Any) -> "list[Wire]":
        """The outputs of a new node that has more than one."""
        names = [(each if isinstance(each, Wire) else self.constant(each)).name for each in inputs]
        outputs = [self._new_name() for _ in range(count)]
        self.nodes.append(helper.make_node(kind, names, outputs, **attributes))
        return [Wire(self, name) for name in outputs]

    def where(self, condition: "Wire", then: Any, otherwise: Any) -> "Wire":
        return self("Where", condition, then, otherwise)

    def total(self, values: "Wire", axis: int, keep: bool = False) -> "Wire":
        return self("ReduceSum", values, np.array([axis]), keepdims=int(keep))

    def mean(self, values: "Wire", axis: int) -> "Wire":
        """The mean along an axis, which is kept with the length 1."""
        return self("ReduceMean", values, axes=[axis], keepdims=1)

    def highest(self, values: "Wire", axis: int) -> "Wire":
        """The maximum along an axis, which is kept with the length 1."""
        return self("ReduceMax", values, axes=[axis], keepdims=1)

    def any(self, flags: "Wire", axis: int | None = None) -> "Wire":
        """Whether any flag is true: along an axis, which is dropped, or of all (1,)."""
        if axis is None:
            flags, axis = self.reshape(flags, (1, -1)), 1
        return self("Cast", self("ReduceMax", flags.cast(TensorProto.INT32), axes=[axis], keepdims=0), to=BOOL)

    def all(self, flags: "Wire", axis: int | None = None) -> "Wire":
        """Whether all flags are true, as in `any`."""
        return ~self.any(~flags, axis)

    def reshape(self, values: "Wire", shape: Sequence[int]) -> "Wire":
        return self("Reshape", values, np.array(shape, np.int64))

    def rows(self, values: "Wire", start: int, stop: int | None = None) -> "Wire":
        end = np.iinfo(np.int64).max if stop is None else stop
        return self("Slice", values, np.array([start]), np.array([end]), np.array([0]))

    def clip(self, values: "Wire", low: float, high: float) -> "Wire":
        return self("Clip", values, float(low), float(high))

    def branch(
        self, condition: "Wire", then: "Callable[[Graph], Wire]", otherwise: "Callable[[Graph], Wire]", kind: int
    ) -> "Wire":
        """The result of one of two subgraphs; only that one runs. `kind` is its element type."""
        return self(
            "If",
            self.reshape(condition, ()),
            then_branch=self._subgraph(then, kind),
            else_branch=self._subgraph(otherwise, kind),
        )

    def accumulate(self, step: "Callable[[Graph, Wire, Wire], Wire]", start: "Wire", items: "Wire") -> "Wire":
        """Fold `step`, a function of the result so far and the next item, over `items`, from `start`."""
        body = Graph(self)
        before, item = self._new_name(), self._new_name()
        after = step(body, Wire(body, before), Wire(body, item))
        inputs = [helper.make_tensor_value_info(name, DOUBLE, None) for name in (before, item)]
        outputs = [helper.make_tensor_value_info(after.name, DOUBLE, None)]
        scanned = helper.make_graph(body.nodes, "step", inputs, outputs)
        return self("Scan", start, items, body=scanned, num_scan_inputs=1)

    def identity(self, values: "Wire", name: str) -> None:
        self.nodes.append(helper.make_node("Identity", [values.name], [name]))

    def _subgraph(self, make: "Callable[[Graph], Wire]", kind: int) -> GraphProto:
        inner = Graph(self)
        result = inner("Identity", make(inner))  # a branch may not return a wire from outside
        return helper.make_graph(inner.nodes, "branch", [], [helper.make_tensor_value_info(result.name, kind, None)])

    def _new_name(self) -> str:
        self._root._names += 1
        return f"w{self._root._names}"


def _node(kind: str) -> "Callable[[Wire, Operand], Wire]":
    return lambda wire, other: wire.graph(kind, wire, other)


class Wire:
    """A value that a graph computes, with the operators of Python; `&`, `|` and `~` are for flags."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def cast(self, kind: int) -> "Wire":
        return self.graph("Cast", self, to=kind)

    def inside(self, graph: Graph) -> "Wire":
        """The same value, for use in a subgraph."""
        return Wire(graph, self.name)

    __add__, __sub__, __mul__, __truediv__ = _node("Add"), _node("Sub"), _node("Mul"), _node("Div")
    __matmul__ = _node("MatMul")
    __gt__, __ge__, __lt__, __le__ = _node("Greater"), _node("GreaterOrEqual"), _node("Less"), _node("LessOrEqual")
    __and__, __or__ = _node("And"), _node("Or")

    def __invert__(self) -> "Wire":
        return self.graph("Not", self)

    def __abs__(self) -> "Wire":
        return self.graph("Abs", self)

    def same(self, other: Operand) -> "Wire":
        """Where two values are equal; not `==`, which would make wires unhashable."""
        return self.graph("Equal", self, other)
