"""Whether a model of the Hub can be had, found out in seconds: its library asks on for minutes without a network."""

from __future__ import annotations

import os
import sys

from cprt.errors import InputError

_PATIENCE = 5.0  # seconds


def check_model(model: str, revision: str | None = None) -> None:
    """Ask the Hub for the model's configuration, once. What is not a name of the Hub is nobody's concern here.

    Where the Hub does not answer, a model in the local cache is used as it is there, with a note, and the Hub is asked
    no more in this process. Raises InputError for one that is not there, or that nobody may read.
    """
    if os.path.exists(model) or model.count("/") != 1 or model.startswith(("/", ".")):
        return
    import httpx2
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        get_hf_file_metadata(hf_hub_url(model, "config.json", revision=revision), timeout=_PATIENCE)
    except GatedRepoError as error:
        raise InputError(f"{model}: the Hub wants you to ask for access at {constants.ENDPOINT}/{model}") from error
    except RepositoryNotFoundError as error:
        raise InputError(f"{model}: there is no such model folder, and none on the Hub that your token may read") from error
    except RevisionNotFoundError as error:
        raise InputError(f"{model}: has no revision {revision!r} on the Hub") from error
    except (EntryNotFoundError, HFValidationError):
        return  # loading says what is wrong
    except (httpx2.HTTPError, OfflineModeIsEnabled) as error:
        is_cached = isinstance(try_to_load_from_cache(model, "config.json", revision=revision), str)
        offline = isinstance(error, OfflineModeIsEnabled)
        why = "HF_HUB_OFFLINE is set" if offline else f"the Hub cannot be reached ({_reason(error)})"
        if not is_cached:
            raise InputError(f"{model}: {why}, and the model is not in the local cache") from error
        if not offline:
            print(f"note: {why}; {model} is taken from the local cache", file=sys.stderr)
            constants.HF_HUB_OFFLINE = True
            os.environ["HF_HUB_OFFLINE"] = "1"  # peft looks there


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    return f"HTTP {response.status_code}" if response is not None else type(error).__name__
