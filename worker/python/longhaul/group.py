"""What ranks tell each other, through the process group of torch.distributed."""
from __future__ import annotations

import typing

from . import errors

_Mine = typing.TypeVar("_Mine")


def check(ranks: int, why: str) -> None:
    """The process group has to be all ranks that train together; `why` begins the sentence of the
    error: 'so many ranks ...'. One rank needs no group."""
    if ranks == 1:
        return
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 0
    if size != ranks:
        raise errors.UnsupportedError(
            f"{ranks} ranks {why}, and their process group has {size}: call "
            "torch.distributed.init_process_group() first", errors.UnsupportedError.code)


def of_all(mine: _Mine, ranks: int) -> list[_Mine]:
    """What each rank gave, in the ranks' order, on each of them. All call it; each waits."""
    if ranks == 1:
        return [mine]
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    found: list[typing.Any] = [None] * ranks
    dist.all_gather_object(found, mine)
    return found
