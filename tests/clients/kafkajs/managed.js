// Writes to and reads a topic until it is told to end; see test_clients_on_managed_topics.py.
'use strict'

const { Kafka, Partitioners, logLevel } = require('kafkajs')
const [bootstrap, topic, role] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.ERROR })
const input = { text: '', ended: false }
process.stdin.on('data', (data) => { input.text += data })
process.stdin.on('end', () => { input.ended = true })
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  let sent = 0
  for (; !input.ended; await pause(20)) {
    const messages = Array.from({ length: 5 }, () => ({ key: `kafkajs-${sent % 20}`, value: String(sent++) }))
    await producer.send({ topic, acks: -1, messages })
    if (sent === 5) console.log('begun')
  }
  await producer.disconnect()
  console.log(sent)
}

async function consume() {
  const consumer = kafka.consumer({ groupId: `${topic}-kafkajs`, maxWaitTimeInMs: 500 })
  let read = 0
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message }) => {
      read++
      console.log(`${message.key} ${message.value}`)
    },
  })
  while (!input.ended || read < Number(input.text)) await pause(100)
  await pause(1500) // so that a record too many is seen
  await consumer.disconnect()
}

;(role === 'produce' ? produce() : consume()).catch((error) => {
  console.error(error)
  process.exit(1)
})
