package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const wait = 30 * time.Second

var (
	producers    = map[string]rocketmq.Producer{}
	transactions rocketmq.TransactionProducer
	starting     sync.Mutex
	// The state of each transaction by body: at send, and when the broker checks back.
	decisions, checks sync.Map
)

var states = map[string]primitive.LocalTransactionState{
	"commit":   primitive.CommitMessageState,
	"rollback": primitive.RollbackMessageState,
	"unknown":  primitive.UnknowState,
}

func send(fields Line) (Line, error) {
	if _, there := fields["deliver_at"]; there {
		return nil, NotOffered("the Go client knows delay levels only")
	}
	kind := "plain"
	if fields["trace"] == "true" {
		kind = "traced"
	} else if _, chosen := fields["queue"]; chosen {
		kind = "by-queue"
	}
	sender, err := producerOf(kind)
	if err != nil {
		return nil, err
	}
	message := messageOf(fields, "body")
	switch fields["mode"] {
	case "oneway":
		return Line{}, sender.SendOneWay(context.Background(), message)
	case "async":
		return sendAsync(sender, message)
	default:
		return sendResultFields(sender.SendSync(context.Background(), message))
	}
}

func sendAsync(sender rocketmq.Producer, message *primitive.Message) (Line, error) {
	type outcome struct {
		result *primitive.SendResult
		err    error
	}
	done := make(chan outcome, 1)
	err := sender.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
		done <- outcome{result, err}
	}, message)
	if err != nil {
		return nil, err
	}
	select {
	case came := <-done:
		return sendResultFields(came.result, came.err)
	case <-time.After(wait):
		return nil, fmt.Errorf("no callback within %s", wait)
	}
}

func batch(fields Line) (Line, error) {
	sender, err := producerOf("plain")
	if err != nil {
		return nil, err
	}
	var messages []*primitive.Message
	for i := 0; ; i++ {
		name := fmt.Sprintf("body%d", i)
		if _, there := fields[name]; !there {
			break
		}
		messages = append(messages, messageOf(fields, name))
	}
	return sendResultFields(sender.SendSync(context.Background(), messages...))
}

func request(fields Line) (Line, error) {
	sender, err := producerOf("plain")
	if err != nil {
		return nil, err
	}
	ttl := time.Duration(fields.number("seconds", 0)) * time.Second
	reply, err := sender.Request(context.Background(), ttl, messageOf(fields, "body"))
	if err != nil {
		return nil, err
	}
	return Line{"body": string(reply.Body)}, nil
}

func transaction(fields Line) (Line, error) {
	decisions.Store(fields["body"], states[fields["decision"]])
	check := fields["check"]
	if check == "" {
		check = "commit"
	}
	checks.Store(fields["body"], states[check])
	starting.Lock()
	if transactions == nil {
		fresh, err := rocketmq.NewTransactionProducer(outcomes{}, producer.WithNsResolver(nameserver),
			producer.WithGroupName("go_transactions"), producer.WithInstanceName("transactions"))
		if err == nil {
			err = fresh.Start()
		}
		if err != nil {
			starting.Unlock()
			return nil, err
		}
		transactions = fresh
	}
	starting.Unlock()
	result, err := transactions.SendMessageInTransaction(context.Background(), messageOf(fields, "body"))
	if err != nil {
		return nil, err
	}
	return sendResultFields(result.SendResult, nil)
}

type outcomes struct{}

func (outcomes) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	state, _ := decisions.Load(string(message.Body))
	return state.(primitive.LocalTransactionState)
}

func (outcomes) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	Line{"event": "checked", "inbox": "checks", "body": string(message.Body)}.print()
	if state, known := checks.Load(string(message.Body)); known {
		return state.(primitive.LocalTransactionState)
	}
	return primitive.UnknowState
}

func producerOf(kind string) (rocketmq.Producer, error) {
	starting.Lock()
	defer starting.Unlock()
	if known, there := producers[kind]; there {
		return known, nil
	}
	options := []producer.Option{producer.WithNsResolver(nameserver), producer.WithGroupName("go_" + kind),
		producer.WithInstanceName(fmt.Sprintf("producer-%s-%d", kind, os.Getpid())), producer.WithSendMsgTimeout(10 * time.Second)}
	switch kind {
	case "traced":
		options = append(options, producer.WithTrace(&primitive.TraceConfig{
			Access: primitive.Local, Resolver: nameserver, GroupName: "go_trace"}))
	case "by-queue":
		options = append(options, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	}
	fresh, err := rocketmq.NewProducer(options...)
	if err == nil {
		err = fresh.Start()
	}
	if err != nil {
		return nil, err
	}
	producers[kind] = fresh
	return fresh, nil
}

func messageOf(fields Line, body string) *primitive.Message {
	message := primitive.NewMessage(fields["topic"], []byte(fields[body]))
	if tags, there := fields["tags"]; there {
		message.WithTag(tags)
	}
	if keys, there := fields["keys"]; there {
		message.WithKeys(strings.Split(keys, " "))
	}
	if level := fields.number("delay_level", 0); level > 0 {
		message.WithDelayTimeLevel(level)
	}
	for name, value := range fields {
		if strings.HasPrefix(name, "p.") {
			message.WithProperty(name[2:], value)
		}
	}
	if _, chosen := fields["queue"]; chosen {
		// The manual selector takes the queue from the message; the client fills in the broker only if it finds one.
		message.Queue = queueOf(fields["topic"], fields.number("queue", 0))
	}
	return message
}

func sendResultFields(result *primitive.SendResult, err error) (Line, error) {
	if err != nil {
		return nil, err
	}
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = fmt.Sprint(result.Status)
	}
	line := Line{"status": status, "message_id": result.MsgID, "offset_message_id": result.OffsetMsgID,
		"queue_offset": fmt.Sprint(result.QueueOffset)}
	if result.MessageQueue != nil {
		line["queue_id"] = fmt.Sprint(result.MessageQueue.QueueId)
	}
	return line, nil
}
