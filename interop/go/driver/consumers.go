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

func consume(request Line) (Line, error) {
	options := []consumer.Option{
		consumer.WithNsResolver(nameserver),
		consumer.WithGroupName(request["group"]),
		consumer.WithInstance(request["inbox"]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithMaxReconsumeTimes(int32(request.number("max_reconsume", 16))),
		consumer.WithSuspendCurrentQueueTimeMillis(200 * time.Millisecond),
	}
	if request["model"] == "BROADCASTING" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if request["ordered"] == "true" {
		options = append(options, consumer.WithConsumerOrder(true))
	}
	if request["trace"] == "true" {
		options = append(options, consumer.WithTrace(&primitive.TraceConfig{
			Access: primitive.Local, Resolver: nameserver, GroupName: "go_trace_" + request["group"]}))
	}
	receiver, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: request["expression"]}
	if sql, there := request["sql"]; there {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	err = receiver.Subscribe(request["topic"], selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			return accept(request, messages), nil
		})
	if err == nil {
		err = receiver.Start()
	}
	if err != nil {
		return nil, err
	}
	consumersLock.Lock()
	defer consumersLock.Unlock()
	consumers[request["inbox"]] = receiver
	return Line{}, nil
}

// accept reports the messages and rejects their first `fail` attempts.
func accept(request Line, messages []*primitive.MessageExt) consumer.ConsumeResult {
	for _, message := range messages {
		Line{
			"event": "message", "inbox": request["inbox"], "body": string(message.Body), "tags": message.GetTags(),
			"keys": message.GetKeys(), "message_id": message.MsgId, "queue_id": fmt.Sprint(message.Queue.QueueId),
			"queue_offset": fmt.Sprint(message.QueueOffset), "attempt": fmt.Sprint(message.ReconsumeTimes + 1),
		}.print()
		reply(request, message)
	}
	if int(messages[0].ReconsumeTimes) < request.number("fail", 0) {
		if request["ordered"] == "true" {
			return consumer.SuspendCurrentQueueAMoment
		}
		return consumer.ConsumeRetryLater
	}
	return consumer.ConsumeSuccess
}

func reply(request Line, message *primitive.MessageExt) {
	prefix, there := request["reply"]
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
		Line{"event": "message", "inbox": request["inbox"], "body": "no reply: " + err.Error()}.print()
	}
}

func stop(request Line) (Line, error) {
	consumersLock.Lock()
	receiver := consumers[request["inbox"]]
	delete(consumers, request["inbox"])
	consumersLock.Unlock()
	return Line{}, receiver.Shutdown()
}

func pull(request Line) (Line, error) {
	receiver, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(nameserver),
		consumer.WithGroupName(request["group"]), consumer.WithInstance(request["group"]))
	if err != nil {
		return nil, err
	}
	if err = receiver.Subscribe(request["topic"], consumer.MessageSelector{}); err != nil {
		return nil, err
	}
	if err = receiver.Start(); err != nil {
		return nil, err
	}
	defer receiver.Shutdown()
	var found []*primitive.MessageExt
	for _, queue := range queuesOf(request["topic"]) {
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

func poll(request Line) (Line, error) {
	receiver, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(nameserver), consumer.WithGroupName(request["group"]),
		consumer.WithInstance(request["group"]), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	if err = receiver.Subscribe(request["topic"], consumer.MessageSelector{}); err != nil {
		return nil, err
	}
	if err = receiver.Start(); err != nil {
		return nil, err
	}
	var found []*primitive.MessageExt
	deadline := time.Now().Add(time.Duration(request.number("seconds", 30)) * time.Second)
	for len(found) < request.number("count", 1) && time.Now().Before(deadline) {
		if got, err := receiver.Poll(context.Background(), pollWait); err == nil {
			found = append(found, got.GetMsgList()...)
			receiver.ACK(context.Background(), got, consumer.ConsumeSuccess)
		}
	}
	return bodies(found), receiver.Shutdown()
}

// queuesOf uses the admin API of the client, because its producers do not expose the queues.
func queuesOf(topic string) []*primitive.MessageQueue {
	adminClient, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(addresses)))
	if err != nil {
		panic(err)
	}
	defer adminClient.Close()
	queues, err := adminClient.FetchPublishMessageQueues(context.Background(), topic)
	if err != nil {
		panic(err)
	}
	sort.Slice(queues, func(i, j int) bool { return queues[i].QueueId < queues[j].QueueId })
	return queues
}

func queueOf(topic string, number int) *primitive.MessageQueue {
	return queuesOf(topic)[number]
}
