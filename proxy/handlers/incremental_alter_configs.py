"""IncrementalAlterConfigs: as AlterConfigs, but configs can be deleted: without its config a topic is let go."""

from __future__ import annotations

from kordon.codecs import apis
from kordon.proxy.handlers.alter_configs import AlterConfigs


class IncrementalAlterConfigs(AlterConfigs):
    """Takes Kordon's configs out of IncrementalAlterConfigs."""

    key = apis.INCREMENTAL_ALTER
