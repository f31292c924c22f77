"""Orders in which transfers that wait for one link are sent."""

from paracosm.prediction.parameter_servers.orders.order import ORDERS, transfer_order
from paracosm.prediction.parameter_servers.orders.tac import tac
from paracosm.prediction.parameter_servers.orders.tic import tic

__all__ = ["ORDERS", "tac", "tic", "transfer_order"]
