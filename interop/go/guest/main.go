// Apache's Go client as a puppet: each line of its input is something to do, each line of its output an answer or a
// message that arrived. A line holds fields as a web form does.
//
// Run by interop/broker/guests.py as: guest nameserver. The verbs are those of interop/broker/client.py.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const lineBytesMax = 16 << 20

// Line is what was asked, or what is answered.
type Line map[string]string

// NotOffered says why this client has no such thing.
type NotOffered string

func (why NotOffered) Error() string { return string(why) }

type verb func(ask Line) (Line, error)

var (
	nameserver primitive.NsResolver
	addresses  []string
	output     sync.Mutex
)

func main() {
	rlog.SetLogLevel("warn")
	_ = rlog.SetOutputPath(os.Getenv("HOME") + "/client.log")
	addresses = []string{os.Args[1]}
	nameserver = primitive.NewPassthroughResolver(addresses)
	verbs := map[string]verb{
		"send": send, "batch": batch, "transaction": transaction, "request": request,
		"consume": consume, "stop": stop, "poll": poll, "pull": pull,
		"query": notOffered("the Go client has no query by key"), "view": notOffered("the Go client has no look-up by id"),
	}
	Line{"event": "ready"}.print()
	asks := bufio.NewScanner(os.Stdin)
	asks.Buffer(nil, lineBytesMax)
	for asks.Scan() {
		fields, err := url.ParseQuery(asks.Text())
		if err != nil {
			panic(err)
		}
		ask := Line{}
		for name := range fields {
			ask[name] = fields.Get(name)
		}
		go answer(ask, verbs[ask["do"]])
	}
}

func answer(ask Line, run verb) {
	defer func() {
		if problem := recover(); problem != nil {
			Line{"id": ask["id"], "error": fmt.Sprint(problem)}.print()
		}
	}()
	line, err := run(ask)
	var why NotOffered
	switch {
	case errors.As(err, &why):
		line = Line{"not_offered": string(why)}
	case err != nil:
		line = Line{"error": err.Error()}
	}
	line["id"] = ask["id"]
	line.print()
}

func notOffered(why string) verb {
	return func(Line) (Line, error) { return nil, NotOffered(why) }
}

func (line Line) print() {
	fields := url.Values{}
	for name, value := range line {
		fields.Set(name, value)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(fields.Encode())
}

func (line Line) number(name string, otherwise int) int {
	text, there := line[name]
	if !there {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return number
}

func bodies(messages []*primitive.MessageExt) Line {
	line := Line{}
	for i, message := range messages {
		line[fmt.Sprintf("body%d", i)] = string(message.Body)
	}
	return line
}
