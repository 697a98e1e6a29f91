// Sends messages through a nameserver with the Go client and consumes them.
//
// Run by interop/other_clients.py as: go run . nameserver topic count
// The topic must exist. Prints "consumed N" with the number of different messages that came back.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const wait = 60 * time.Second

func main() {
	rlog.SetLogLevel("error")
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	nameserver := primitive.NewPassthroughResolver([]string{os.Args[1]})
	send(nameserver, os.Args[2], count)
	// Three more: the one-way message and the two of the batch.
	fmt.Println("consumed", consume(nameserver, os.Args[2], count+3))
}

func send(nameserver primitive.NsResolver, topic string, count int) {
	sender, err := rocketmq.NewProducer(producer.WithNsResolver(nameserver), producer.WithGroupName("go_producer"))
	must(err)
	must(sender.Start())
	for i := 0; i < count; i++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("go %d", i))).WithTag("TagA").WithKeys([]string{"k"})
		result, err := sender.SendSync(context.Background(), message)
		must(err)
		if result.Status != primitive.SendOK {
			panic(result.String())
		}
	}
	must(sender.SendOneWay(context.Background(), primitive.NewMessage(topic, []byte("go one-way"))))
	_, err = sender.SendSync(context.Background(),
		primitive.NewMessage(topic, []byte("go batch 1")), primitive.NewMessage(topic, []byte("go batch 2")))
	must(err)
	must(sender.Shutdown())
}

func consume(nameserver primitive.NsResolver, topic string, expected int) int {
	seen := map[string]bool{}
	var lock sync.Mutex
	enough := make(chan struct{})
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(nameserver),
		consumer.WithGroupName("go_consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must(err)
	must(receiver.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			lock.Lock()
			defer lock.Unlock()
			for _, message := range messages {
				body := string(message.Body)
				if !seen[body] {
					seen[body] = true
					if len(seen) == expected {
						close(enough)
					}
				}
			}
			return consumer.ConsumeSuccess, nil
		}))
	must(receiver.Start())
	select {
	case <-enough:
	case <-time.After(wait):
	}
	must(receiver.Shutdown())
	lock.Lock()
	defer lock.Unlock()
	return len(seen)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
