"""What clients send and get, as the OpenAPI documents describe it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

LARGEST_K, LARGEST_SHORTLIST, MOST_IDS = 1000, 10_000, 100_000
_MOST_VALUES = 100_000  # of a vector
_MOST_KEYS = 20
_LARGEST_ID = 2**63 - 1

Finite = Annotated[float, Field(allow_inf_nan=False)]
Id = Annotated[int, Field(ge=0, le=_LARGEST_ID)]


class _First(FailFast):
    """Ends with the first thing that is wrong: a list of all could take gigabytes."""

    __hash__ = object.__hash__  # so that it may stand in a union


Ids = Annotated[list[Id], Field(max_length=MOST_IDS), _First()]
Dimensions = Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=_MOST_VALUES), _First()]
Values = Annotated[list[Finite], Field(max_length=_MOST_VALUES), _First()]


class Options(BaseModel):
    """What every search takes."""

    model_config = ConfigDict(extra="forbid")

    k: int = Field(10, ge=1, le=LARGEST_K, description="How many results.")
    threshold: Finite | None = Field(
        None,
        description="Smallest sparse score of a result. Without one, rows that share no dimension "
        "with the query may be results, too.",
    )
    allowed: Ids | None = Field(None, description="The ids that may be found.")
    forbidden: Ids | None = Field(
        None, description="The ids that may not be found, in place of allowed."
    )
    rerank: bool = Field(False, description="Orders a shortlist by dense embeddings.")
    shortlist: int = Field(
        100, ge=1, le=LARGEST_SHORTLIST, description="How many rows are re-ranked."
    )
    codes: bool = Field(False, description="Whether results have their sparse embeddings.")


class VectorQuery(Options):
    """A sparse vector to search for."""

    indices: Dimensions = Field(description="Its active dimensions.")
    values: Values = Field(description="Their values.")
    dense: Values | None = Field(None, description="The same query, dense, for rerank.")

    @model_validator(mode="before")
    @classmethod
    def _few_keys(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > _MOST_KEYS:
            raise ValueError(f"{len(given)} keys: expected those of /docs")
        return given


class Code(BaseModel):
    """A sparse embedding: its active dimensions, rising, and their values."""

    indices: list[int]
    values: list[float]


class Result(BaseModel):
    """A row that was found."""

    id: int
    score: float = Field(description="Sparse, or dense if it was re-ranked.")
    name: str | None = Field(None, description="Path of its picture in the folder.")
    picture: str | None = Field(None, description="Where its picture is.")
    code: Code | None = None


class Answer(BaseModel):
    """What was found, best first."""

    results: list[Result]
    query: Code
    milliseconds: dict[str, float] = Field(
        description="Of decode, wait, encode, search, rerank, and in total."
    )
    batch: int = Field(description="How many queries were answered together.")


class Row(BaseModel):
    """A row of the collection."""

    id: int
    name: str | None = None
    picture: str | None = None
    code: Code


class Activation(BaseModel):
    """The rows in which a dimension is largest, or smallest if sign is -1."""

    dimension: int
    results: list[Result]


class Info(BaseModel):
    """What this service can do."""

    rows: int
    ids: int = Field(description="Ids are below this; row i of dense rows and pictures is id i.")
    dimensions: int
    images: bool = Field(description="Whether images can be searched for.")
    image_shape: list[int] | None = Field(description="Height, width and channels of the encoder.")
    rerank: bool = Field(description="Whether dense embeddings are there.")
    rerank_images: bool = Field(description="Whether results of an image can be re-ranked.")
    codes: bool
    filters: bool
    pictures: bool
    dark_paper: bool = Field(description="Whether pictures are light ink on dark paper.")
    largest_k: int = LARGEST_K
    largest_shortlist: int = LARGEST_SHORTLIST
    largest_body: int
    largest_pixels: int


class State(BaseModel):
    """How the service is."""

    status: Literal["ok", "ready"]


class Error(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="One sentence.")
