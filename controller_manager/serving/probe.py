"""Asks a process on this machine how it is, without an HTTP library: start-up time is counted in milliseconds."""

import asyncio
import ssl

_SECONDS = 5.0
_LARGEST_LINE = 1024


async def probe(port: int, path: str = "/readyz") -> str:
    """GET `path` over HTTPS on loopback: why the answer is not 200, an empty text if it is.

    Nothing is sent that is secret, and whose certificate the server shows does not matter.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            return await _ask(port, path)
    except TimeoutError:
        return f"https://127.0.0.1:{port}{path} did not answer within {_SECONDS:.0f} seconds"
    except (OSError, ValueError) as error:
        return f"https://127.0.0.1:{port}{path} cannot be reached: {error}"


async def _ask(port: int, path: str) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=_LARGEST_LINE)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        line = (await reader.readline()).decode("latin-1").strip()
    finally:
        writer.close()
    return "" if " 200 " in f"{line} " else f"https://127.0.0.1:{port}{path} answered {line or 'nothing'}"
