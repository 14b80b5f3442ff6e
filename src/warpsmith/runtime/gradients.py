"""Gradients of a kernel: the kernel computes the outputs, and the reference is differentiated.

The backward pass runs the reference once more, on the saved inputs. A second derivative is that of the reference too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._library.custom_ops import CustomOpDef

from warpsmith.runtime.arguments import ReferenceCall
from warpsmith.tasks.program import Program, result_tensors


class ReferenceGradient:
    """The gradients of a task's inputs, given those of its outputs."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names = tuple(spec.name for spec in program.task.inputs)

    def __call__(
        self, inputs: Sequence[Tensor], needed: Sequence[bool], given: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """The gradient of each input; None where it is not needed or no output depends on the input."""
        twice = torch.is_grad_enabled()  # the caller asked for create_graph
        with torch.enable_grad(), torch.autocast(inputs[0].device.type, enabled=False):
            own = [
                (tensor.view_as(tensor) if twice else tensor.detach().requires_grad_()) if wanted else tensor.detach()
                for tensor, wanted in zip(inputs, needed, strict=True)
            ]
            outputs = self._outputs(own)
            pairs = [
                (output, grad)
                for output, grad in zip(outputs, given, strict=True)
                if grad is not None and output.requires_grad
            ]
            wanted = [tensor for tensor, needs in zip(own, needed, strict=True) if needs]
            if not pairs or not wanted:
                return [None] * len(inputs)
            found = iter(
                torch.autograd.grad(
                    [output for output, _ in pairs],
                    wanted,
                    [grad for _, grad in pairs],
                    create_graph=twice,
                    allow_unused=True,
                )
            )
        return [next(found) if needs else None for needs in needed]

    def register(self, operator: CustomOpDef) -> None:
        """Give an operator in torch's registry these gradients."""

        def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
            return tuple(self(ctx.saved_tensors, ctx.needs_input_grad, given))

        operator.register_autograd(backward, setup_context=_save)

    def _outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The reference's outputs with their graph, which `Program.run` does not keep."""
        made: list[Tensor] = []

        def keep(function: Callable[..., object]) -> Callable[..., object]:
            def kept(*args: object, **kwargs: object) -> object:
                with torch.enable_grad():
                    result = function(*args, **kwargs)
                made.extend(tensor for _, tensor in result_tensors(result))
                return result

            return kept

        self._program.bind(dict(zip(self._names, inputs, strict=True)), wrap=keep)()
        return made


def differentiable(reference: ReferenceCall) -> bool:
    """False for a recurrent module: a task's program copies the weights of such a module into a block of its own."""
    module = reference.function
    return not (isinstance(module, nn.Module) and any(isinstance(part, nn.RNNBase) for part in module.modules()))


def with_gradient(gradient: ReferenceGradient, outputs: list[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs that a kernel made of these inputs, as results of a function with this gradient."""
    return list(_KernelResult.apply(gradient, outputs, *inputs))  # type: ignore[no-untyped-call]


class _KernelResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: ReferenceGradient, outputs: list[Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.gradient = gradient
        _save(ctx, inputs, outputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.gradient(ctx.saved_tensors, ctx.needs_input_grad[2:], given)


def _save(ctx: Any, inputs: Sequence[Tensor], output: object) -> None:
    ctx.save_for_backward(*inputs)
    ctx.set_materialize_grads(False)
