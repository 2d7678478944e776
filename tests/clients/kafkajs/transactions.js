// kafkajs's transactional producer, or a reader of what such producers write; see kordon.testing.order.transact.
'use strict'

const fs = require('fs')
const { Kafka, Partitioners, logLevel } = require('kafkajs')
const task = Object.fromEntries(process.argv.slice(2).map((each) => each.split(/=(.*)/s).slice(0, 2)))
const number = (name) => Number(task[name])
const kafka = new Kafka({ clientId: 'kafkajs', brokers: task.bootstrap.split(','), logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 12 } })
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))
const nowUs = () => Number(process.hrtime.bigint() / 1000n)
let file
let ended = false
let state = number('seed') * 1000 + number('life')

function below(bound) { // chance that can be repeated
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0
  return Math.floor((state / 2 ** 32) * bound)
}

function open(name, whose) {
  file = fs.openSync(`${task.folder}/${name}.history`, 'wx')
  fs.writeSync(file, JSON.stringify(whose) + '\n')
}

function note(e, fields) {
  fs.writeSync(file, JSON.stringify({ e, t: nowUs(), ...fields }) + '\n')
}

async function start() {
  for (;;) {
    const producer = kafka.producer({ transactionalId: task.name, idempotent: true, maxInFlightRequests: 1,
      transactionTimeout: 30000, createPartitioner: Partitioners.DefaultPartitioner })
    try {
      await producer.connect()
      return producer
    } catch (error) {
      note('trouble', { kind: 'retriable', error: String(error.type || error.name) })
      await producer.disconnect().catch(() => {})
      await pause(100)
    }
  }
}

// Does a transaction, and what its errors ask for; returns what came of it, and the producer for the next one.
async function transact(producer, x, records, commits, heldMs) {
  let committing = false
  let transaction
  try {
    transaction = await producer.transaction()
    const halves = [records.slice(0, 1), records.slice(1)].filter((half) => half.length)
    for (const [place, half] of halves.entries()) {
      if (place === 1) await pause(heldMs)
      const messages = half.map(([key, sequence]) => ({ key, value: `${sequence} of a transaction` }))
      await transaction.send({ topic: task.topic, messages })
    }
    note('ending', { x, commits })
    committing = commits
    await (commits ? transaction.commit() : transaction.abort())
    return [commits ? 'committed' : 'aborted', producer]
  } catch (error) {
    note('trouble', { kind: 'abortable', error: String(error.type || error.name) })
  }
  try {
    await transaction.abort()
    return ['aborted', producer]
  } catch (error) {
    note('trouble', { kind: 'fatal', error: String((error && error.type) || (error && error.name)) })
  }
  await producer.disconnect().catch(() => {})
  return [committing ? 'unknown' : 'aborted', await start()]
}

async function write() {
  process.stdin.on('data', () => {})
  process.stdin.on('end', () => { ended = true })
  open(`${task.name}.${task.life}`, { producer: task.name })
  let x = number('life') * 100000
  let n = number('life') * 20000
  const sequences = Array(number('keys')).fill(number('life') * 20000)
  let producer = await start()
  for (; !ended; await pause(number('pause_ms'))) {
    const records = Array.from({ length: 1 + below(8) }, () => {
      const key = below(sequences.length)
      return [`${task.name}-${key}`, sequences[key]++]
    })
    note('begun', { x, n, r: records })
    const commits = below(100) >= number('aborted_percent')
    const heldMs = below(100) < number('held_percent') ? number('held_ms') : 0
    let outcome
    ;[outcome, producer] = await transact(producer, x, records, commits, heldMs)
    note('over', { x, outcome })
    n += records.length
    x++
  }
  await producer.disconnect()
}

// kafkajs reads with a group only: one member, which begins anew at the start whenever it joins.
async function read() {
  open(task.name, { group: task.name, member: task.name, isolation: task.isolation })
  const left = new Set(Array.from({ length: number('partitions') }, (_, partition) => partition))
  const consumer = kafka.consumer({ groupId: `${task.topic}-${task.name}`, maxWaitTimeInMs: 100,
    readUncommitted: task.isolation === 'read_uncommitted' })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const p = payload.memberAssignment[task.topic] || []
    note('revoked', { p, lost: true })
    note('assigned', { p })
  })
  let crashed = null // a crash that is not restarted ends the consumer without a word
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    console.error(new Date().toISOString(), 'crash, restart:', payload.restart, payload.error)
    if (!payload.restart) crashed = payload.error
  })
  await consumer.connect()
  await consumer.subscribe({ topic: task.topic, fromBeginning: true })
  await consumer.run({ autoCommit: false, eachMessage: async ({ partition, message }) => {
    const k = String(message.key)
    note('processed', { p: partition, o: Number(message.offset), k, s: parseInt(String(message.value), 10) })
    if (k.startsWith('last-')) left.delete(partition)
  } })
  while (left.size && !crashed) await pause(50)
  if (crashed) throw crashed
  await consumer.disconnect()
  note('ended', {})
}

;(task.role === 'write' ? write() : read()).then(() => process.exit(0), (error) => {
  console.error(error)
  process.exit(1)
})
