"""A gRPC client, over Unix sockets and TCP."""

from controller_manager.common.transport.grpc.channel import GrpcChannel, GrpcTls
from controller_manager.common.transport.grpc.failures import GrpcError
from controller_manager.common.transport.grpc.stream import GrpcStream

__all__ = ["GrpcChannel", "GrpcError", "GrpcStream", "GrpcTls"]
