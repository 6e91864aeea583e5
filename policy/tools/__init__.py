"""Tools that a model may call while it analyses a kernel (OpenAI tool calling; off by default)."""

from policy.tools.base import Found, Tool, ToolAnswer, ToolArgs, ToolError
from policy.tools.documents import DocumentLibrary
from policy.tools.kernel_library import KernelLibrary, LibraryKernel, folder_kernels, shipped_kernels
from policy.tools.toolbox import ANSWER_CHARS, TOOLS, ToolBox, ToolSources
from policy.tools.triton_reference import language_reference

__all__ = [
    "ANSWER_CHARS",
    "TOOLS",
    "DocumentLibrary",
    "Found",
    "KernelLibrary",
    "LibraryKernel",
    "Tool",
    "ToolAnswer",
    "ToolArgs",
    "ToolBox",
    "ToolError",
    "ToolSources",
    "folder_kernels",
    "language_reference",
    "shipped_kernels",
]
