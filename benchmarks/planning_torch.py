"""The graphs of benchmarks/planning.py: what PyTorch traces, and what its partitioner makes of it."""

from __future__ import annotations

import copy
import operator
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import fx, nn
from torch._functorch import config
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from rematc.passes.planning.problem import GIVEN, Problem, problem_of, simulate

BUDGETS = [step / 20 for step in range(20, -1, -1)]
Traced = tuple[str, Problem, list[tuple[float, int, int, float]], int]


class Block(nn.Module):
    """A transformer layer: attention, fused or spelled out, and two dense layers."""

    def __init__(self, width: int, heads: int, *, is_fused: bool) -> None:
        super().__init__()
        self.heads, self.is_fused = heads, is_fused
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.projections(self.first_norm(x)).split(width, dim=2)
        q, k, v = (part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        if self.is_fused:
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            weights = q @ k.transpose(-2, -1) * (self.heads / width) ** 0.5
            later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
            attended = torch.softmax(weights.masked_fill(later, float("-inf")), -1) @ v
        x = x + self.output(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.second_norm(x))))


class Gpt(nn.Module):
    """Six layers, and cross-entropy over a vocabulary of 1024."""

    def __init__(self, *, is_fused: bool) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(1024, 256), nn.Parameter(torch.zeros(1, 256, 256))
        self.blocks = nn.ModuleList([Block(256, 8, is_fused=is_fused) for _ in range(6)])
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 1024, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.positions[:, : tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, 1024), targets.view(-1))


class Mlp(nn.Module):
    """Twelve dense layers with GELU, and the mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1024, 1024) for _ in range(12)])

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return ((x - y) ** 2).mean()


class Builder:
    """A problem from graphs of PyTorch: views are the storages that they show, and cost nothing."""

    def __init__(self) -> None:
        self.cost: list[int] = []
        self.reads: list[list[int]] = []
        self.size: list[int] = []
        self.producer: list[int] = []
        self.results: set[int] = set()

    def add(self, graph: fx.Graph, known: dict[str, Any]) -> tuple[dict[fx.Node, Any], list[Any]]:
        """Add a graph's nodes, its inputs by name where they are known; its nodes' storages, and its outputs."""
        storage: dict[fx.Node, Any] = {}
        outputs: list[Any] = []
        for node in graph.nodes:
            if node.op == "output":
                outputs = list(node.args[0])
            elif node.op != "call_function":
                storage[node] = known[node.name] if node.name in known else self._value(0, GIVEN)
            elif node.target is operator.getitem:
                source = storage[node.args[0]]
                storage[node] = source[node.args[1]] if isinstance(source, list) else source
            elif _is_view(node):
                storage[node] = storage[node.all_input_nodes[0]]
            else:
                storage[node] = self._run(node, storage)
        return storage, outputs

    def problem(self) -> Problem:
        """What was added."""
        return problem_of(
            cost=self.cost, reads=self.reads, size=self.size, producer=self.producer, results=sorted(self.results)
        )

    def finish(self, outputs: Sequence[Any], storage: dict[fx.Node, Any]) -> None:
        """Let these outputs be results."""
        self.results |= {storage[node] for node in outputs if isinstance(node, fx.Node)}

    def _run(self, node: fx.Node, storage: dict[fx.Node, Any]) -> Any:
        self.reads.append(sorted({v for v in pytree.tree_leaves([storage[i] for i in node.all_input_nodes]) if v >= 0}))
        self.cost.append(_flops(node))
        shown = node.meta["val"]
        if isinstance(shown, (tuple, list)):
            return [self._written(part) for part in shown]
        return self._written(shown)

    def _written(self, shown: Any) -> int:
        if not isinstance(shown, torch.Tensor):
            return -1
        return self._value(shown.numel() * shown.element_size(), len(self.cost) - 1)

    def _value(self, size: int, producer: int) -> int:
        self.size.append(size)
        self.producer.append(producer)
        return len(self.size) - 1


def _is_view(node: fx.Node) -> bool:
    returns = node.target._schema.returns  # type: ignore[union-attr]  # an ATen overload
    return bool(returns) and returns[0].alias_info is not None and not returns[0].alias_info.is_write


def _flops(node: fx.Node) -> int:
    """What the partitioner counts: FLOPs of products, 1 for anything else."""
    args, kwargs = pytree.tree_map_only(fx.Node, lambda operand: operand.meta["val"], (node.args, node.kwargs))
    with FlopCounterMode(display=False) as mode:
        node.target(*args, **kwargs)  # type: ignore[operator]  # an ATen overload
    return max(mode.get_total_flops(), 1)


def traced() -> Iterator[Traced]:
    """Name, joint graph, rows of budget, peak, FLOPs and seconds, and the FLOPs of the forward pass, for each model."""
    tokens = torch.zeros(8, 256, dtype=torch.long)
    yield _traced("gpt6-sdpa", Gpt(is_fused=True), (tokens, tokens))
    yield _traced("gpt6-manual", Gpt(is_fused=False), (tokens, tokens))
    yield _traced("mlp12", Mlp(), (torch.zeros(4096, 1024), torch.zeros(4096, 1024)))


def _traced(name: str, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Traced:
    captured: list[tuple[fx.GraphModule, Any, dict[str, Any]]] = []

    def partition(joint: fx.GraphModule, joint_inputs: Any, **options: Any) -> Any:
        captured.append((copy.deepcopy(joint), joint_inputs, options))
        return min_cut_rematerialization_partition(joint, joint_inputs, **options)

    def loss(parameters: list[torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        names = [key for key, _ in model.named_parameters()]
        return torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), inputs)

    compiled = aot_function(loss, lambda graph, _: graph, partition_fn=partition, decompositions=select_decomp_table())
    compiled(list(model.parameters()), inputs)
    joint, joint_inputs, options = captured[0]
    points = []
    for budget in BUDGETS:
        config.activation_memory_budget = budget
        started = time.perf_counter()
        forward, backward = min_cut_rematerialization_partition(copy.deepcopy(joint), joint_inputs, **options)
        seconds = time.perf_counter() - started
        run = simulate(_parts(forward, backward, options["num_fwd_outputs"]))
        points.append((budget, run.peak, run.time, seconds))
    joint.graph.eliminate_dead_code()
    builder = Builder()
    storage, outputs = builder.add(joint.graph, {})
    builder.finish(pytree.tree_leaves(outputs), storage)
    # With a budget of nothing all of the forward pass runs again.
    return name, builder.problem(), points, points[-1][2] - points[0][2]


def _parts(forward: fx.GraphModule, backward: fx.GraphModule, results: int) -> Problem:
    """A forward graph and the backward graph after it, as they stand."""
    builder = Builder()
    storage, outputs = builder.add(forward.graph, {})
    builder.finish(outputs[:results], storage)
    saved = {node.name: storage[node] for node in outputs[results:] if isinstance(node, fx.Node)}
    storage, outputs = builder.add(backward.graph, saved)
    builder.finish(outputs, storage)
    return builder.problem()
