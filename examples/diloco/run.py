"""DiLoCo beside data parallelism at equal tokens, and what Streaming DiLoCo asks of a network.

    python examples/diloco/run.py

prints what it finds and checks it; it takes about five minutes on one core. Douillard et al.,
"DiLoCo: Distributed Low-Communication Training of Language Models", 2023: eight workers that
exchange 500 times less reach the loss of data parallelism, from a model that was trained for a
while. Douillard et al., "Streaming DiLoCo with overlapping communication", 2025: by fragments the
peak bandwidth falls by their number; where workers compute on, what they need falls further.
"""

from __future__ import annotations

import sys

import bandwidth
import language

from paracosm.training import Metrics, TrainConfig, TrainingResult, train

Check = tuple[str, bool]

STEPS = 500  # between two exchanges
EVALUATED = 2000  # examples
LINK = 10e6 / 8  # bytes/s, with which steps of 50 ms are compared


def main() -> int:
    checks = compare_bandwidth() + compare_losses(pretraining=1000, rounds=6)
    for what, holds in checks:
        print(f"{'ok  ' if holds else 'FAIL'} {what}")
    return 0 if all(holds for _, holds in checks) else 1


def compare_losses(pretraining: int, rounds: int, steps: int = STEPS) -> list[Check]:
    """Train on the same minibatches, with an exchange after every step and every `steps` steps."""
    before = trained("ssgd", "language:model", pretraining)
    language.start = before.parameters
    print(f"\nloss {loss_of(before):.4f} after {pretraining} steps of data parallelism; from there")
    streaming = f"streaming-diloco(steps={steps}, fragments=2, overlap={min(5, steps - 1)})"
    results = {
        "data parallel": trained("ssgd", "language:pretrained", rounds * steps),
        "DiLoCo": trained(f"diloco(steps={steps})", "language:pretrained", rounds),
        "Streaming DiLoCo": trained(streaming, "language:pretrained", rounds),
    }
    print(f"{'':24}{'tokens':>10}{'MB sent':>10}{'hours':>10}{'test loss':>10}")
    for name, result in results.items():
        summary = result.summary
        print(
            f"{name:24}{summary['examples'] * language.LENGTH:>10,}"
            f"{bytes_sent(result) / 1e6:>10.2f}{summary['virtual_time'] / 3600:>10.3f}"
            f"{loss_of(result):>10.4f}"
        )
    plain = results.pop("data parallel")
    checks = []
    for name, result in results.items():
        less = bytes_sent(plain) / bytes_sent(result)
        worse = loss_of(result) / loss_of(plain) - 1
        equal = plain.summary["examples"] == result.summary["examples"]
        checks += [
            (f"{name} learns from as many tokens as data parallelism", equal),
            (f"{name} sends {less:.0f} times less (at least {steps})", less >= steps - 1e-6),
            (f"the loss of {name} is {worse:+.1%} (at most +2 %)", worse <= 0.02),
        ]
    return checks


def trained(algorithm: str, model: str, updates: int) -> TrainingResult:
    """Train four workers, each on eight stretches of text a step."""
    config = TrainConfig.model_validate(
        {
            "model": model,
            "data": "language:data",
            "algorithm": algorithm,
            "topology": "all-reduce",
            "workers": 4,
            "batch": 8,
            "optimizer": "adamw",
            "lr": 3e-3,
            "lookahead": "off",  # four gradients at a time are too few for vmap
            "updates": updates,
            "evaluate_every": updates,
            "evaluate_examples": EVALUATED,
            "compute": "50ms",
            "bandwidth": f"{LINK}B/s",
        }
    )
    return train(config)


def loss_of(result: TrainingResult) -> float:
    """Return the loss on text that was not trained on."""
    assert isinstance(result.metrics, Metrics)
    return result.metrics.series("test_loss")[-1].value


def bytes_sent(result: TrainingResult) -> float:
    """Return the bytes that a worker has sent."""
    assert isinstance(result.metrics, Metrics)
    share = result.metrics.series("utilisation.send")[0].value
    return share * float(result.summary["virtual_time"]) * LINK


def compare_bandwidth() -> list[Check]:
    """Compare what is sent at a time, and the bandwidth at which workers hardly wait."""
    ways = bandwidth.ways()
    size, share = bandwidth.SIZE, bandwidth.BUSY
    print(
        f"{bandwidth.WORKERS} workers, {size / 1e9:g} GB of parameters, {bandwidth.STEP:g} s a "
        f"step, exchanged every {bandwidth.STEPS} steps, {bandwidth.FRAGMENTS} fragments, "
        f"overlap {bandwidth.OVERLAP} steps"
    )
    print(f"{'':24}{'peak':>10}{f'to compute {share:.0%}':>20}{'simulated':>12}")
    peaks, needed, agree = {}, {}, []
    fast = 8 * size  # bytes/s, with which an exchange takes a fraction of a step
    for way in ways:
        rounds = 300 // way.steps
        _, timeline = way.simulate(fast, rounds)
        peaks[way.name] = bandwidth.peak(timeline, fast)
        needed[way.name] = way.needed()
        computing, _ = way.simulate(needed[way.name], rounds)
        agree.append(abs(computing - share) < 0.005)
        print(
            f"{way.name:24}{peaks[way.name] / 1e9:>7.2f} GB"
            f"{8 * needed[way.name] / 1e9:>13.3f} Gbit/s{computing:>12.1%}"
        )
    overlapped = ways[-1]
    enough = bandwidth.sent(max(overlapped.sizes)) / overlapped.hidden
    calm, _ = overlapped.simulate(enough * 1.001, 3)
    late, _ = overlapped.simulate(enough * 0.9, 3)
    fewer = peaks["DiLoCo"] / peaks["streaming"]
    parts = size / max(overlapped.sizes)
    falls = needed["DiLoCo"] / needed[overlapped.name]
    count, at = bandwidth.FRAGMENTS, f"{8 * enough / 1e9:.2f} Gbit/s"
    return [
        ("simulated workers compute as long as the formulas say", all(agree)),
        (
            f"{count} fragments divide the peak by {fewer:.2f}, the largest being 1/{parts:.2f}",
            abs(fewer - parts) < 1e-3 and fewer > 0.9 * count,
        ),
        (f"overlap divides the bandwidth that is needed by {falls:.2f}", falls > 1.5),
        (f"nobody waits from {at} on, and somebody at a tenth less", calm > 1 - 1e-9 > late),
    ]


if __name__ == "__main__":
    sys.exit(main())
