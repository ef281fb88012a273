r"""Prints what the presets cost at full size: parameters, memory, disk, traffic and time.

    python -m sparse_embed.experiments.training_cost
    python -m sparse_embed.experiments.training_cost --presets=mobilefacenet_flops_300 \
        --peaks=82.6,165,1008,32 --utilisation=0.5

Builds each network as `train` would, traces its training step and counts; nothing is run, and no
data or GPU is needed. `--peaks` is your own GPU in place of those in the table. With `--output`,
the tables are written as Markdown too, between the marks of a page that has them.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.benchmarks import training_cost
from sparse_embed.experiments.reporting.markdown import put_between_marks
from sparse_embed.experiments.reporting.text_table import text_table
from sparse_embed.flags import app
from sparse_embed.flags import training as train_flags
from sparse_embed.flags.output import OUTPUT

train_flags.define()
_PRESETS = flags.DEFINE_list(
    "presets", None, "Presets of faces or of CIFAR-100; default: all of the paper's."
)
_CLASSES = flags.DEFINE_integer(
    "classes", 85_000, "Training classes of a face data set.", lower_bound=1
)
_GPUS = flags.DEFINE_list(
    "gpus", ["V100", "H100"], f"GPUs of the table of times: {', '.join(training_cost.GPUS)}."
)
_PEAKS = flags.DEFINE_list(
    "peaks",
    None,
    "A GPU of your own in place of --gpus: TFLOPS in float32, TFLOPS in half precision, GB/s of "
    "its memory, GB/s to other GPUs.",
)
_UTILISATION = flags.DEFINE_float(
    "utilisation", 0.6, "Share of each peak that a step reaches.", lower_bound=0.01, upper_bound=1.0
)
_NONZEROS = flags.DEFINE_integer(
    "nonzeros", 32, "Non-zeros of a sparse embedding, for the disk.", lower_bound=1
)


def main() -> None:
    """Reads the flags, counts, prints and writes."""
    output = app.writable_file("output", OUTPUT.value, ".md") if OUTPUT.value else None
    configs = {name: train_flags.preset_config(name) for name in _presets()}
    found = training_cost.costs(configs, _CLASSES.value)
    shown = training_cost.tables(found, _gpus(), _UTILISATION.value, _NONZEROS.value)
    for title, head, rows in shown:
        print(f"{title}\n{text_table(head, rows)}\n")
    if output:
        page = output.read_text() if output.exists() else ""
        output.write_text(put_between_marks(page, training_cost.markdown(shown)))


def _presets() -> list[str]:
    known = training_cost.paper_presets(app.preset_names())
    for name in _PRESETS.value or []:
        if name not in known:
            raise UsageError(f"--presets={name}: expected some of {', '.join(known)}")
    return _PRESETS.value or known


def _gpus() -> dict[str, training_cost.Gpu]:
    if _PEAKS.value:
        try:
            return {"GPU": training_cost.Gpu(*map(float, _PEAKS.value))}
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"--peaks={','.join(_PEAKS.value)}: expected four numbers, such as 15.7,125,900,150"
            ) from error
    for name in _GPUS.value:
        if name not in training_cost.GPUS:
            raise UsageError(f"--gpus={name}: expected some of {', '.join(training_cost.GPUS)}")
    return {name: training_cost.GPUS[name] for name in _GPUS.value}


if __name__ == "__main__":
    app.run(main)
