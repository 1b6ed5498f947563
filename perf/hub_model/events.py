# SPDX-License-Identifier: Apache-2.0
"""The event loop, and the servers that stand in line: ports of links, memory, the hub's table."""
import collections
import heapq


class Clock:
    """Runs actions in the order of their times (us); those of one time in the order in which they were asked for."""

    def __init__(self):
        self.now = 0.0
        self.events = 0
        self._heap = []

    def at(self, time, action, *arguments):
        self.events += 1
        heapq.heappush(self._heap, (time, self.events, action, arguments))

    def run(self):
        while self._heap:
            self.now, _, action, arguments = heapq.heappop(self._heap)
            action(*arguments)


class Server:
    """One piece of work after the other. `rate` is work per us; 0 takes no time."""

    def __init__(self, clock, rate):
        self._clock = clock
        self._rate = rate
        self._free = 0.0
        self.total = 0.0

    def serve(self, work, begun=None):
        """When `work` is through that could begin at `begun` (default: now)."""
        self.total += work
        start = max(self._clock.now if begun is None else begun, self._free)
        self._free = start + (work / self._rate if self._rate else 0)
        return self._free


class Egress:
    """The outgoing half of a GPU's port. Dispatch and combine take turns on it, each in the order of its queue."""

    def __init__(self, clock, time_of, deliver, idle):
        self._clock = clock
        self._time_of = time_of  # us of a batch on the wire
        self._deliver = deliver
        self._idle = idle        # called when the queue of dispatch has run empty
        self._queues = collections.deque([collections.deque(), collections.deque()])
        self._dispatch = self._queues[0]
        self._busy = False

    def push(self, batch, back):
        (self._dispatch if not back else next(q for q in self._queues if q is not self._dispatch)).append(batch)
        if not self._busy:
            self._next()

    def _next(self):
        self._queues.rotate()
        queue = next((q for q in self._queues if q), None)
        self._busy = queue is not None
        if self._busy:
            batch = queue.popleft()
            self._clock.at(self._clock.now + self._time_of(batch), self._sent, batch, queue)

    def _sent(self, batch, queue):
        self._deliver(batch)
        if queue is self._dispatch and not queue:
            self._idle()
        self._next()
