package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const pollWait = time.Second

var (
	consumers     = map[string]rocketmq.PushConsumer{}
	consumersLock sync.Mutex
)

func consume(ask Line) (Line, error) {
	options := []consumer.Option{
		consumer.WithNsResolver(nameserver),
		consumer.WithGroupName(ask["group"]),
		consumer.WithInstance(ask["inbox"]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithMaxReconsumeTimes(int32(ask.number("max_reconsume", 16))),
		consumer.WithSuspendCurrentQueueTimeMillis(200 * time.Millisecond),
	}
	if ask["model"] == "BROADCASTING" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if ask["ordered"] == "true" {
		options = append(options, consumer.WithConsumerOrder(true))
	}
	if ask["trace"] == "true" {
		options = append(options, consumer.WithTrace(&primitive.TraceConfig{
			Access: primitive.Local, Resolver: nameserver, GroupName: "go_trace_" + ask["group"]}))
	}
	receiver, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: ask["expression"]}
	if sql, there := ask["sql"]; there {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	err = receiver.Subscribe(ask["topic"], selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			return accept(ask, messages), nil
		})
	if err == nil {
		err = receiver.Start()
	}
	if err != nil {
		return nil, err
	}
	consumersLock.Lock()
	defer consumersLock.Unlock()
	consumers[ask["inbox"]] = receiver
	return Line{}, nil
}

// accept reports the messages, and refuses them while they have been tried fewer than `fail` times.
func accept(ask Line, messages []*primitive.MessageExt) consumer.ConsumeResult {
	for _, message := range messages {
		Line{
			"event": "message", "inbox": ask["inbox"], "body": string(message.Body), "tags": message.GetTags(),
			"keys": message.GetKeys(), "message_id": message.MsgId, "queue_id": fmt.Sprint(message.Queue.QueueId),
			"queue_offset": fmt.Sprint(message.QueueOffset), "attempt": fmt.Sprint(message.ReconsumeTimes + 1),
		}.print()
		reply(ask, message)
	}
	if int(messages[0].ReconsumeTimes) < ask.number("fail", 0) {
		if ask["ordered"] == "true" {
			return consumer.SuspendCurrentQueueAMoment
		}
		return consumer.ConsumeRetryLater
	}
	return consumer.ConsumeSuccess
}

func reply(ask Line, message *primitive.MessageExt) {
	prefix, there := ask["reply"]
	if !there {
		return
	}
	answer, err := consumer.CreateReplyMessage(message, nil)
	if err == nil {
		// CreateReplyMessage of this client takes the body for properties.
		answer.Body = append([]byte(prefix), message.Body...)
		var sender rocketmq.Producer
		if sender, err = producerOf("plain"); err == nil {
			_, err = sender.SendSync(context.Background(), answer)
		}
	}
	if err != nil {
		Line{"event": "message", "inbox": ask["inbox"], "body": "no reply: " + err.Error()}.print()
	}
}

func stop(ask Line) (Line, error) {
	consumersLock.Lock()
	receiver := consumers[ask["inbox"]]
	delete(consumers, ask["inbox"])
	consumersLock.Unlock()
	return Line{}, receiver.Shutdown()
}

func pull(ask Line) (Line, error) {
	receiver, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(nameserver),
		consumer.WithGroupName(ask["group"]), consumer.WithInstance(ask["group"]))
	if err != nil {
		return nil, err
	}
	if err = receiver.Subscribe(ask["topic"], consumer.MessageSelector{}); err != nil {
		return nil, err
	}
	if err = receiver.Start(); err != nil {
		return nil, err
	}
	defer receiver.Shutdown()
	var found []*primitive.MessageExt
	for _, queue := range queuesOf(ask["topic"]) {
		result, err := receiver.PullFrom(context.Background(), queue, 0, 32)
		for err == nil && result.Status == primitive.PullFound {
			found = append(found, result.GetMessageExts()...)
			if result.NextBeginOffset >= result.MaxOffset {
				break // its pulls wait 20 s for what is not there
			}
			result, err = receiver.PullFrom(context.Background(), queue, result.NextBeginOffset, 32)
		}
		if err != nil {
			return nil, err
		}
	}
	return bodies(found), nil
}

func poll(ask Line) (Line, error) {
	receiver, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(nameserver), consumer.WithGroupName(ask["group"]),
		consumer.WithInstance(ask["group"]), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	if err = receiver.Subscribe(ask["topic"], consumer.MessageSelector{}); err != nil {
		return nil, err
	}
	if err = receiver.Start(); err != nil {
		return nil, err
	}
	var found []*primitive.MessageExt
	deadline := time.Now().Add(time.Duration(ask.number("seconds", 30)) * time.Second)
	for len(found) < ask.number("count", 1) && time.Now().Before(deadline) {
		if got, err := receiver.Poll(context.Background(), pollWait); err == nil {
			found = append(found, got.GetMsgList()...)
			receiver.ACK(context.Background(), got, consumer.ConsumeSuccess)
		}
	}
	return bodies(found), receiver.Shutdown()
}

// queuesOf asks the admin part of the client, for its producers do not tell.
func queuesOf(topic string) []*primitive.MessageQueue {
	asker, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(addresses)))
	if err != nil {
		panic(err)
	}
	defer asker.Close()
	queues, err := asker.FetchPublishMessageQueues(context.Background(), topic)
	if err != nil {
		panic(err)
	}
	sort.Slice(queues, func(i, j int) bool { return queues[i].QueueId < queues[j].QueueId })
	return queues
}

func queueOf(topic string, number int) *primitive.MessageQueue {
	return queuesOf(topic)[number]
}
