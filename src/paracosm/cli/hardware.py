"""`paracosm hardware list`, `show`, `stacks`, `add`: the datasheets, kernels and software stacks
that predictions use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import yaml
from typer import Argument, Option

from paracosm.cli.display import aligned, printer, show_result
from paracosm.cli.options import ForceFile, Json
from paracosm.cluster.hardware import (
    Efficiencies,
    Hardware,
    add_to_catalogue,
    find_hardware,
    find_stack,
    load_catalogue,
    load_efficiencies,
    load_stacks,
)
from paracosm.cluster.hardware.kernels import Kernels, load_kernels
from paracosm.errors import InputError
from paracosm.files import temporary_folder
from paracosm.profiling.measured_stack import measured_stack
from paracosm.units import format_bandwidth, format_duration, format_size


def list_(json: Json = False) -> int:
    """List the devices, nodes and links of the catalogue, with the user's own.

    Example: paracosm hardware list
    """
    known, table = load_catalogue(), load_efficiencies()
    rows = {
        "device|>Tflop/s|>16 bits|>memory|>bandwidth|node|efficiency": [
            [
                name,
                *(f"{device.peak_tflops.get(dtype, 0):g}" for dtype in ("float32", "float16")),
                *(format_size(device.memory), f"{device.memory_bandwidth / 1e9:g} GB/s"),
                *(device.node or "", "measured" if table.has(name) else "of others"),
            ]
            for name, device in known.devices.items()
        ],
        "node|>devices|of|joined by|network": [
            [
                *(name, str(node.count), node.devices[0], node.inner or ""),
                f"{node.cards} x {node.outer}",
            ]
            for name, node in known.nodes.items()
        ],
        "link, one way|>datasheet|>usable": [
            [name, format_bandwidth(link.bandwidth), format_bandwidth(link.usable)]
            for name, link in known.interconnects.items()
        ],
    }

    def show() -> None:
        say = printer()
        say(f"{len(known.devices)} devices, {len(known.nodes)} nodes: paracosm hardware show NAME")
        for header, entries in rows.items():
            say("")
            say(aligned([header.split("|"), *entries]))

    show_result(known.model_dump(mode="json"), json, False, show)
    return 0


def show(
    name: Annotated[str, Argument(help="a device or a node of the catalogue, or a datasheet file")],
    json: Json = False,
) -> int:
    """Show the datasheet of a device and its node, each with its source, and its efficiencies.

    Example: paracosm hardware show h100-sxm
    """
    hardware, table = find_hardware(name), load_efficiencies()
    content = {
        "name": hardware.name,
        "device": hardware.device.model_dump(mode="json"),
        "node": None if hardware.node is None else hardware.node.model_dump(mode="json"),
        "efficiencies": {
            op_class: {**entry.model_dump(), "known": known}
            for op_class in _classes(table)
            for entry, known in [table.find(hardware.name, op_class)]
        },
    }
    show_result(content, json, False, lambda: _show(hardware, table))
    return 0


def _show(hardware: Hardware, table: Efficiencies) -> None:
    say, device, node = printer(), hardware.device, hardware.node
    inner, outer = hardware.inner, hardware.outer
    say(f"{hardware.name}: {device.title}" + (f" ({hardware.origin})" if hardware.origin else ""))
    say("")
    rows = [[f"peak, {dtype}", f"{rate:g} Tflop/s"] for dtype, rate in device.peak_tflops.items()]
    rows += [
        ["memory", format_size(device.memory)],
        ["its bandwidth", f"{device.memory_bandwidth / 1e9:g} GB/s"],
        ["power", "not known" if device.power is None else f"{device.power:g} W"],
    ]
    say(aligned([["", ""], *rows]))
    say(f"source: {device.source}")
    if node is not None and outer is not None:
        joined = "" if inner is None else f" ({_link(inner.usable, inner.latency)})"
        within = "" if inner is None else f" by {inner.title}{joined}"
        say(f"\nnode {hardware.node_name}: {node.title}: {node.count} devices{within}")
        say(f"network: {node.cards} x {outer.title} ({_link(outer.usable, outer.latency)})")
        say(f"source: {node.source}")
    if hardware.host is not None and hardware.host_link is not None:
        host = hardware.host
        bandwidth = f"{host.memory_bandwidth / 1e9:g} GB/s of memory"
        say(f"\nhost: {host.title}: {bandwidth}, {hardware.host_link.title} to each device")
        say(f"source: {host.source}")
    for name, why in hardware.assumed.items():
        say(f"assumed: {name}: {why}")
    say("")
    header = ["class of ops", ">of peak", ">of bandwidth", ">fixed", ">90 %", "known"]
    entries = [(op_class, *table.find(hardware.name, op_class)) for op_class in _classes(table)]
    shares = [
        [
            *(op_class, *("" if share == 1 else f"{share:.0%}" for share in (e.compute, e.memory))),
            *(format_duration(e.fixed), f"{e.spread:.0%}", known),
        ]
        for op_class, e, known in entries
    ]
    say(aligned([header, *shares]))


def _classes(table: Efficiencies) -> list[str]:
    return sorted({op_class for classes in table.devices.values() for op_class in classes})


def _link(bandwidth: float, latency: float) -> str:
    return f"{bandwidth / 1e9:g} GB/s one way, {format_duration(latency)}"


def stacks(json: Json = False) -> int:
    """List the software stacks with their kernels, and what these were timed to reach.

    Example: paracosm hardware stacks
    """
    known = load_stacks()

    def show() -> None:
        say = printer()
        say(f"{len(known)} stacks; paracosm predict --stack NAME takes one")
        say("")
        rows = [
            [
                *(name, stack.since, stack.recipe, stack.float8, stack.context),
                ", ".join(f"{kernel} ({where})" for where, kernel in stack.attention.items()),
            ]
            for name, stack in known.items()
        ]
        say(aligned([["stack", "since", "ops", "float8", "context", "attention"], *rows]))
        kernels = load_kernels()
        say("")
        say(aligned(_kernel_rows(kernels)))
        say("")
        for name, stack in known.items():
            say(f"{name}: {stack.title}. Source: {stack.source}")
            for other, source in stack.also.items():
                say(f"{other}: the same as {name}. Source: {source}")

    content = {name: stack.model_dump(mode="json") for name, stack in known.items()}
    show_result(content, json, False, show)
    return 0


def _kernel_rows(kernels: Kernels) -> list[list[str]]:
    attention = [
        [
            *(f"attention, {name}", str(kernel.ops)),
            ", ".join(
                f"{device} {max(rates.values()):.0f}" for device, rates in kernel.rates.items()
            ),
        ]
        for name, kernel in kernels.attention.items()
    ]
    products = [
        [
            *(f"products, {name}", str(kernel.ops)),
            ", ".join(f"{device} {rate:.0f}" for device, rate in kernel.rates.items()),
        ]
        for name, kernel in kernels.products.items()
    ]
    return [["kernel", ">timings", "Tflop/s of large ones"], *attention, *products]


def add(
    file: Annotated[
        Path,
        Argument(
            help="devices, interconnects, nodes and stacks by name, as YAML; or a profile database "
            "with timings of ops or links, as a stack"
        ),
    ],
    stack: Annotated[str | None, Option(help="name of the stack that a database measured")] = None,
    hardware: Annotated[
        str | None, Option(help="of the catalogue: what the database was measured on")
    ] = None,
    like: Annotated[
        str | None, Option(help="the stack that it is like in all else [pytorch-eager]")
    ] = None,
    force: ForceFile = False,
    json: Json = False,
) -> int:
    """Add datasheets or stacks to the user's own, or a stack that was measured on a device.

    Example: paracosm hardware add my-accelerator.yaml
    """
    options = {"--stack": stack, "--hardware": hardware, "--like": like}
    if not _is_database(file):
        for flag, value in options.items():
            if value is not None:
                raise InputError(f"{flag}: has no effect, leave it out: {file} is no database")
        target, added = add_to_catalogue(file, force=force)
    else:
        for flag, example in (("--stack", "my-stack"), ("--hardware", "h100-sxm")):
            if options[flag] is None:
                raise InputError(f"{file}: a profile database: add {flag} {example}")
        assert stack is not None
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", stack):
            raise InputError(f'--stack: "{stack}": a name has letters a to z, digits and hyphens')
        base = find_stack(like or "pytorch-eager")
        measured = measured_stack(file, find_hardware(hardware or ""), base)
        with temporary_folder() as folder:
            written = folder / f"{stack}.yaml"
            content = {"stacks": {stack: measured.model_dump(mode="json", exclude_defaults=True)}}
            written.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
            target, added = add_to_catalogue(written, force=force)
    names = [*added.devices, *added.nodes, *added.interconnects, *added.stacks]
    show_result(
        {"file": str(target), "added": names},
        json,
        False,
        lambda: printer()(f"Added {', '.join(names)}: {target}"),
    )
    return 0


def _is_database(file: Path) -> bool:
    try:
        with file.open("rb") as content:
            return content.read(16) == b"SQLite format 3\0"
    except OSError:
        return False  # what reads it as YAML says why
