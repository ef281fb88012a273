"""Where results go."""

from absl import flags

from sparse_embed.flags.shared import defined_on_import

ENCODERS = ["keras", "saved_model", "litert", "litert_float16", "litert_int8"]


def _export() -> flags.FlagHolder:
    holder = flags.DEFINE_list(
        "export",
        [],
        f"Formats to write the encoder in, beside {ENCODERS[0]}: {', '.join(ENCODERS[1:])}. Each "
        "is compared with the Keras encoder. LiteRT needs the extra litert.",
    )
    flags.register_validator(
        holder,
        lambda names: set(names) <= set(ENCODERS[1:]),
        message=f"expected some of {', '.join(ENCODERS[1:])}",
    )
    return holder


__getattr__ = defined_on_import(
    globals(),
    {
        "ENCODER": lambda: flags.DEFINE_enum(
            "encoder",
            "keras",
            ENCODERS,
            "Which file of the run is the encoder: keras is the one that train writes, "
            "export_encoder writes the others.",
        ),
        "EXPORT": _export,
        "MODEL_DIR": lambda: flags.DEFINE_string(
            "model_dir",
            None,
            "Folder of a training run: encoder, record, checkpoints, TensorBoard events.",
        ),
        "OUTPUT": lambda: flags.DEFINE_string("output", None, "File to write."),
        "RECORDS": lambda: flags.DEFINE_string(
            "records",
            "runs/records",
            "Folder of evaluation records, one file per method and setting.",
        ),
        "RUN_DIR": lambda: flags.DEFINE_string(
            "run_dir",
            "runs/reproduce",
            "Folder of a reproduction: all that it makes, and its report.",
        ),
        "USE_SAVED_MODEL": lambda: flags.DEFINE_bool(
            "saved_model",
            False,
            "TensorFlow's SavedModel of the encoder, for serving without Keras: train exports it "
            "too, embed uses it in place of the .keras file.",
        ),
    },
)
