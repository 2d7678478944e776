"""Copies a topic to another one with Spark Structured Streaming until its standard input ends.

copy_topic.py CHECKPOINT JARS BOOTSTRAP SOURCE SINK
"""

import sys
import threading

from pyspark.sql import SparkSession

checkpoint, jars, bootstrap, source, sink = sys.argv[1:]
settings: dict[str, bool | float | int | str | None] = {
    "spark.jars": jars,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it lives for a minute
}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .option("failOnDataLoss", "true")
    .load()
)
query = (
    records.select("key", "value")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("topic", sink)
    .option("checkpointLocation", checkpoint)
    .trigger(processingTime="1 second")
    .start()
)
sys.stdout.write("begun\n")
sys.stdout.flush()


def stop() -> None:
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()


threading.Thread(target=stop, daemon=True).start()
query.awaitTermination()
