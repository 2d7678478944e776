"""The auditor for `spark-submit`: `spark-submit --py-files kordon.whl … main.py --bootstrap kafka:9092 --out s3a://…`.

It takes the options of `kordon audit run`.
"""

from __future__ import annotations

from kordon.spark_jobs.cli import run

if __name__ == "__main__":
    run(prog_name="main.py")
