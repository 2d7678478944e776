// Prints the offsets of a topic: by partition its beginning, its end, and the first one at a time or later, else the end.
'use strict'

const { Kafka, logLevel } = require('kafkajs')
const [bootstrap, topic, time] = process.argv.slice(2)

async function main() {
  const admin = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.ERROR }).admin()
  await admin.connect()
  const marks = await admin.fetchTopicOffsets(topic)
  const found = await admin.fetchTopicOffsetsByTimestamp(topic, Number(time))
  await admin.disconnect()
  const begins = new Map(found.map(({ partition, offset }) => [partition, offset]))
  console.log(JSON.stringify(Object.fromEntries(
    marks.map(({ partition, low, high }) => [partition, [low, high, begins.get(partition)].map(Number)]))))
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
