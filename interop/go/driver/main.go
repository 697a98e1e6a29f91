// Drives Apache's Go client: each line of standard input is a command, each line of standard output a response or a
// message that arrived. A line holds URL-encoded form fields.
//
// Run by interop/broker/foreign_clients.py as: driver nameserver. The commands are those of interop/broker/client.py.
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

// Line is a request, a response or an event.
type Line map[string]string

// NotOffered says why this client does not have the feature.
type NotOffered string

func (why NotOffered) Error() string { return string(why) }

type verb func(request Line) (Line, error)

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
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, lineBytesMax)
	for input.Scan() {
		fields, err := url.ParseQuery(input.Text())
		if err != nil {
			panic(err)
		}
		request := Line{}
		for name := range fields {
			request[name] = fields.Get(name)
		}
		go respond(request, verbs[request["do"]])
	}
}

func respond(request Line, run verb) {
	defer func() {
		if problem := recover(); problem != nil {
			Line{"id": request["id"], "error": fmt.Sprint(problem)}.print()
		}
	}()
	line, err := run(request)
	var why NotOffered
	switch {
	case errors.As(err, &why):
		line = Line{"not_offered": string(why)}
	case err != nil:
		line = Line{"error": err.Error()}
	}
	line["id"] = request["id"]
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
