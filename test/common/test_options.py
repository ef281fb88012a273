import dataclasses

from sparse_embed.common.options import option


def test_an_option_is_a_field_with_its_default_and_what_a_flag_says():
    def words():
        raise AssertionError("choices are asked for only when a flag is made")

    @dataclasses.dataclass(frozen=True)
    class Options:
        size: int = option(112, "Height.", lower=8, upper=512)
        kind: str = option("a", "Kind.", choices=words)

    assert Options() == Options(size=112, kind="a")
    assert Options(size=7).size == 7
    size, kind = dataclasses.fields(Options)
    told = {"help": "Height.", "choices": None, "lower": 8, "upper": 512, "parser": None}
    assert dict(size.metadata) == told
    assert kind.metadata["choices"] is words
    assert kind.metadata["lower"] is kind.metadata["upper"] is None
