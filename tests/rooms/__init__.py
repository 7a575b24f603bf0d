"""A LiveKit server for tests: real rooms, real jobs and real WebRTC, all on this machine.

    async with LiveKitServer() as server:
        job = await server.dispatch("kitchen")   # to a worker that runs elsewhere
        guest = server.guest("kitchen")
        await guest.until(lambda: guest.captions)

It speaks what a client and a worker need of LiveKit's protocols: joining, publishing a track,
data packets both ways and a guest's microphone; being offered jobs and taking them. One guest
waits in each room, and what joins beside it is an agent. No rooms of many, no video, no
reconnecting, no HTTP API.

Tried with livekit 1.1.21, livekit-agents 1.8.9, livekit-protocol 1.1.29 and aiortc 1.16.0. Other
versions may say something else: then ``NotUnderstoodError`` or a ``TimeoutError`` is raised
within seconds, and nothing waits for ever.
"""
