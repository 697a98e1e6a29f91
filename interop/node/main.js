// Sends messages through a nameserver with the Node client (ali-ons) and consumes them.
//
// Run by interop/other_clients.py as: node main.js nameserver topic count, in a directory with node_modules.
// The topic must exist. Prints "consumed N" with the number of different messages that came back.
'use strict';

const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');

const [nameSrv, topic, count] = [process.argv[2], process.argv[3], Number(process.argv[4])];
const quiet = { info() {}, warn() {}, debug() {}, error: console.error };
const common = { httpclient, nameSrv, logger: quiet, accessKeyId: 'nodeAccess', accessKeySecret: 'nodeSecret' };

async function send() {
  const producer = new Producer({ ...common, producerGroup: 'node_producer' });
  await producer.ready();
  for (let i = 0; i < count; i++) {
    const result = await producer.send(new Message(topic, 'TagA', `node ${i}`));
    if (result.sendStatus !== 'SEND_OK') throw new Error(JSON.stringify(result));
  }
  await producer.close();
}

async function consume() {
  const seen = new Set();
  const consumer = new Consumer({ ...common, consumerGroup: 'node_consumer', consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' });
  const enough = new Promise(resolve => {
    consumer.subscribe(topic, 'TagA', async message => {
      seen.add(String(message.body));
      if (seen.size === count) resolve();
    });
    setTimeout(resolve, 60000);
  });
  await consumer.ready();
  await enough;
  return seen.size;
}

send().then(consume).then(
  seen => {
    console.log('consumed', seen);
    process.exit(0);
  },
  problem => {
    console.error(problem);
    process.exit(1);
  },
);
