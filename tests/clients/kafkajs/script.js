// What kafkajs is asked to do. Prints one JSON line for each step; see kordon.testing.steps.
'use strict'

const { Kafka, logLevel, CompressionTypes, CompressionCodecs, ConfigResourceTypes, AclResourceTypes,
  AclOperationTypes, AclPermissionTypes, ResourcePatternTypes } = require('kafkajs')
const zstd = require('@bokuweb/zstd-wasm')
const lz4 = require('lz4js')
const xxh32 = require('lz4js/xxh32')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

// Brokers take independent blocks only. Ours are (there is but one), but lz4js does not say so in the frame's flags.
function lz4Frame(buffer) {
  const frame = Buffer.from(lz4.compress(buffer))
  frame[4] |= 0x20
  frame[6] = (xxh32.hash(0, frame, 4, 2) >>> 8) & 0xff
  return frame
}

CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4Frame(encoder.buffer),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})

const CODECS = ['None', 'GZIP', 'Snappy', 'LZ4', 'ZSTD']
const TIMESTAMP_MS = '1700000000000'
const KEEP = [{ name: 'retention.ms', value: '-1' }]
const [bootstrap, prefix] = process.argv.slice(2)
const kafka = new Kafka({
  clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3, initialRetryTime: 100 },
})
const admin = kafka.admin()
const named = (what) => `${prefix}-${what}`

function plain(_, value) {
  if (value && value.type === 'Buffer') return Buffer.from(value.data).toString()
  return typeof value === 'bigint' ? value.toString() : value
}

function tell(step, outcome) {
  process.stdout.write(JSON.stringify({ step, ...outcome }, plain) + '\n')
}

async function step(name, call) {
  try {
    const answer = await call()
    tell(name, { answer: answer === undefined ? null : answer })
  } catch (error) {
    const inner = [...(error.errors || []), ...(error.groups || []).map((group) => group.error)]
      .map((e) => `${e.type}: ${e.message}`)
    tell(name, { error: [`${error.name} ${error.type}: ${error.message}`, ...inner].join('; ') })
  }
}

async function until(what, holds, seconds = 20) {
  const deadline = Date.now() + seconds * 1000
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${seconds} s`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

// A commit is answered before its markers are written; until they are, kafkajs is refused what other clients retry.
async function settled(call) {
  let refused
  await until('the last transaction is over', async () => {
    refused = undefined
    try {
      await call()
    } catch (error) {
      if (error.type !== 'CONCURRENT_TRANSACTIONS') refused = error
      else return false
    }
    return true
  })
  if (refused) throw refused
}

function inOrder(items) {
  const key = (item) => JSON.stringify(item, plain)
  return [...items].sort((a, b) => (key(a) < key(b) ? -1 : 1))
}

function records(topic, count) {
  const kind = topic.slice(topic.lastIndexOf('-') + 1)
  return Array.from({ length: count }, (_, n) => ({
    key: `key-${n}`, value: `${kind}-${n} `.repeat(1 + n * 7), timestamp: TIMESTAMP_MS,
    headers: { kind: 'test', empty: '' },
  }))
}

// Known is not yet led, and what comes too early with acks=0 is lost.
async function ready(topic) {
  await until(topic, () => admin.fetchTopicOffsets(topic).catch(() => false))
}

async function create(what, numPartitions = 1, configEntries = []) {
  const topic = named(what)
  const configs = [...KEEP, ...configEntries]
  await admin.createTopics({ topics: [{ topic, numPartitions, configEntries: configs }], waitForLeaders: false })
  await ready(topic)
  return topic
}

async function topics() {
  const topic = named('made')
  const make = (wanted) => admin.createTopics({ topics: [wanted], waitForLeaders: false })
  await step('create topic', () => make({ topic, numPartitions: 2, configEntries: KEEP }))
  await ready(topic)
  await step('create it again', () => make({ topic, numPartitions: 2 }))
  await step('invalid config', () => make({ topic: named('x'), configEntries: [{ name: 'no.such', value: '1' }] }))
  await step('too many replicas', () => make({ topic: named('z'), replicationFactor: 9 }))
  await step('grow', () => admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] }))
  await step('shrink', () => admin.createPartitions({ topicPartitions: [{ topic, count: 1 }] }))
  const describe = (name) => admin.fetchTopicMetadata({ topics: [name] })
  await until('3 partitions', async () => (await describe(topic)).topics[0].partitions.length === 3)
  await step('describe topic', async () => {
    const found = (await describe(topic)).topics[0]
    return { ...found, partitions: inOrder(found.partitions) }
  })
  await step('describe unknown topic', () => describe(named('nowhere')))
  const gone = await create('gone')
  await step('delete topic', () => admin.deleteTopics({ topics: [gone] }))
  await step('delete unknown topic', () => admin.deleteTopics({ topics: [named('nowhere')] }))
}

async function configs() {
  const topic = await create('config')
  const alter = (value) => admin.alterConfigs({ validateOnly: false, resources: [
    { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'max.message.bytes', value }] }] })
  const describe = (type, name) => admin.describeConfigs({ includeSynonyms: true, resources: [{ type, name }] })
  await step('alter config', () => alter('2000'))
  await step('alter to nonsense', () => alter('many'))
  await until('the config', async () => JSON.stringify(await describe(ConfigResourceTypes.TOPIC, topic)).includes('"2000"'))
  await step('topic config', () => describe(ConfigResourceTypes.TOPIC, topic))
  await step("unknown topic's config", () => describe(ConfigResourceTypes.TOPIC, named('nowhere')))
  await step('broker config', () => describe(ConfigResourceTypes.BROKER, '1'))
}

async function acls() {
  const rule = { resourceType: AclResourceTypes.TOPIC, resourceName: named('acl'),
    resourcePatternType: ResourcePatternTypes.LITERAL, principal: 'User:somebody', host: '*',
    operation: AclOperationTypes.READ, permissionType: AclPermissionTypes.ALLOW }
  await step('add ACL', () => admin.createAcls({ acl: [rule] }))
  await until('the rule', async () => (await admin.describeAcls(rule)).resources.length)
  await step('list ACLs', () => admin.describeAcls(rule))
  await step('remove ACLs', () => admin.deleteAcls({ filters: [rule] }))
}

async function produce() {
  const topic = await create('codecs', 3 * CODECS.length)
  const producer = kafka.producer()
  await producer.connect()
  for (const [number, codec] of CODECS.entries()) {
    for (const [place, acks] of [0, 1, -1].entries()) {
      const partition = 3 * number + place
      const messages = records(topic, 5).map((record) => ({ ...record, partition }))
      const send = () => producer.send({ topic, acks, compression: CompressionTypes[codec], messages })
      await step(`produce ${codec} acks=${acks}`, send)
      await until('the end', async () => (await admin.fetchTopicOffsets(topic))
        .some((found) => found.partition === partition && found.high === '5'))
    }
  }
  await producer.disconnect()
  const once = await create('once')
  const idempotent = kafka.producer({ idempotent: true })
  await idempotent.connect()
  await step('produce idempotently', () => idempotent.send({ topic: once, messages: records(once, 20) }))
  await idempotent.disconnect()
  await step('read codecs', () => read(topic, 75))
  await step('read once', () => read(once, 20))
}

// kafkajs reads with a group only.
async function read(topic, count, more = {}, whenRead = async () => null) {
  const groupId = more.groupId || named(`read-${topic.slice(prefix.length + 1)}-${count}`)
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200, ...more })
  const found = []
  try {
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    let last = Date.now()
    await consumer.run({ autoCommit: false, eachMessage: async ({ partition, message }) => {
      const { offset, key, value, headers, timestamp, attributes } = message
      found.push([partition, offset, key, value, headers, timestamp, attributes])
      last = Date.now()
    } })
    await until(`${count} records`, () => found.length >= count && Date.now() - last > 500)
    await whenRead(consumer, found)
  } finally {
    await consumer.disconnect()
  }
  return inOrder(found)
}

async function transactions() {
  const topic = await create('tx')
  const config = { transactionalId: named('tx'), maxInFlightRequests: 1, idempotent: true }
  const producer = kafka.producer(config)
  await step('init transactions', () => producer.connect())
  const transact = async (end, sender = producer) => {
    const transaction = await sender.transaction()
    const sent = await transaction.send({ topic, messages: records(topic, 3) })
    await transaction[end]()
    return sent
  }
  await step('commit', () => transact('commit'))
  await step('abort', () => transact('abort'))
  await step('commit again', () => transact('commit'))
  await step('offsets in a transaction', async () => {
    const transaction = await producer.transaction()
    const offsets = { consumerGroupId: named('tx-group'), topics: [{ topic, partitions: [{ partition: 0, offset: '2' }] }] }
    await settled(() => transaction.sendOffsets(offsets))
    await transaction.commit()
  })
  await step('read committed', () => read(topic, 6))
  await step('read uncommitted', () => read(topic, 9, { readUncommitted: true }))
  const other = kafka.producer(config)
  await other.connect()
  await step('begin elsewhere', () => transact('commit', other))
  await step('fenced', () => transact('commit'))
  await other.disconnect()
  await producer.disconnect()
}

async function groups() {
  const topic = await create('grouped', 2)
  const producer = kafka.producer()
  await producer.connect()
  for (const partition of [0, 1]) {
    await producer.send({ topic, messages: records(topic, 5).map((record) => ({ ...record, partition })) })
  }
  await producer.disconnect()
  const groupId = named('classic')
  const describe = async () => (await admin.describeGroups([groupId])).groups.map((group) => ({ ...group,
    members: group.members.map(({ memberId, ...member }) => ({ ...member, named: memberId.startsWith('kafkajs-') })) }))
  await step('read', () => read(topic, 10, { groupId }, async (consumer) => {
    await step('commit', () => consumer.commitOffsets([0, 1].map((partition) => ({ topic, partition, offset: '5' }))))
    await step('describe group', describe)
    await step('delete while in use', () => admin.deleteGroups([groupId]))
  }))
  await step('describe when empty', describe)
  await step('alter offsets', () => admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '3' }] }))
  await step('list offsets', () => admin.fetchOffsets({ groupId, topics: [topic] }))
  await step('delete group', () => admin.deleteGroups([groupId]))
}

async function errors() {
  const small = await create('small', 1, [{ name: 'max.message.bytes', value: '500' }])
  const producer = kafka.producer({ retry: { retries: 0 } })
  await producer.connect()
  await step('message too large', () => producer.send({ topic: small, messages: [{ value: 'x'.repeat(5000) }] }))
  await step('unknown topic', () => producer.send({ topic: named('nowhere'), messages: [{ value: 'x' }] }))
  await step('unknown partition', () => producer.send({ topic: small, messages: [{ value: 'x', partition: 7 }] }))
  await producer.disconnect()
  await step('delete unknown group', () => admin.deleteGroups([named('nobody')]))
  await step('describe unknown group', () => admin.describeGroups([named('nobody')]))
  await step('session timeout too short', () => read(small, 1, { sessionTimeout: 6, heartbeatInterval: 1, groupId: named('short'),
    retry: { retries: 0, restartOnFailure: async () => false } }))
}

async function listings() {
  const topic = named('codecs')
  await step('list offsets', async () => inOrder(await admin.fetchTopicOffsets(topic)))
  await step('offsets by time', async () => inOrder(await admin.fetchTopicOffsetsByTimestamp(topic, +TIMESTAMP_MS)))
  await step('delete records', () => admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: '3' }] }))
  await step('list offsets again', async () => inOrder(await admin.fetchTopicOffsets(topic)))
  await step('list groups', async () => inOrder((await admin.listGroups()).groups
    .filter(({ groupId }) => groupId.startsWith(prefix))))
  await step('reassignments', () => admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] }))
  await step('cluster', () => admin.describeCluster())
}

async function main() {
  await zstd.init()
  await admin.connect()
  for (const part of [topics, configs, acls, produce, transactions, groups, errors, listings]) await part()
  await admin.disconnect()
}

main().then(() => process.exit(0), (error) => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
