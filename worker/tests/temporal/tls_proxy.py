"""Ends TLS in front of a server that has none: `tls_proxy.py CA CERT KEY PORT HEX` asks for a certificate of CA, and tells on
its output which port it has, whom it let in, and that the bytes HEX (an API key, as HTTP/2 packs it) came by."""

import asyncio
import ssl
import sys

ca, cert, key, port, needle = sys.argv[1:6]
needle = bytes.fromhex(needle)


async def copy(reader, writer, look):
    seen = b""
    try:
        while data := await reader.read(65536):
            if look and needle in (seen := (seen + data)[-1_000_000:]):
                print("key", flush=True)
                look = False
            writer.write(data)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


async def serve(reader, writer):
    subject = dict(pair for part in writer.get_extra_info("peercert")["subject"] for pair in part)
    print("client", subject["commonName"], flush=True)
    there, back = await asyncio.open_connection("127.0.0.1", int(port))
    await asyncio.gather(copy(reader, back, True), copy(there, writer, False))


async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
